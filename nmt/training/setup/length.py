"""Count the updates of a run: exactly or as an estimate from its first epochs."""

from __future__ import annotations

from nmt.config.sections import TrainConfig
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup.datasets import Datasets

# Limits of planning to count the updates of a run: about ten seconds at a microsecond a sentence.
MOST_EPOCHS, MOST_SENTENCES = 1000, 10_000_000
MOST_DRAWN = 100_000  # sentences whose text is drawn to be planned: about ten seconds


def number_of_updates(config: TrainConfig, batches: TrainingBatches, datasets: Datasets) -> int | None:
    """Return how many updates the limits allow; None: unknown.

    Epochs have equal length, except with a sort window, mixed corpora or changed text. Then the first epochs are counted,
    and their mean stands for the rest, since epochs of a large corpus hardly differ. Fewer epochs are counted if each
    of them is drawn before it is planned.
    """
    limits, batching = config.training, config.batching
    last = limits.last_update
    if limits.max_epoch is None or (batching.exceeded(datasets.longest) and not batching.skip_long):
        return last
    epochs_counted = 1
    changed = bool(config.variation.augment) and config.variation.headroom is not None
    if batching.sort_window is not None or config.sampling.is_on or changed:
        drawn = config.variation.is_on and config.variation.headroom is None
        most = MOST_DRAWN if drawn else MOST_SENTENCES
        epochs_counted = min(limits.max_epoch, MOST_EPOCHS, max(1, most // len(datasets.train)))
    made = 0
    for epoch in range(1, epochs_counted + 1):
        made += batches.updates_in_epoch(epoch)
        if last is not None and made >= last:
            return last
    by_epochs = made * limits.max_epoch // epochs_counted
    return by_epochs if last is None else min(by_epochs, last)

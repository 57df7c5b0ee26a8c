"""How long a run is: what limits it, how many updates that makes, and what another length does to a run that has begun."""

from __future__ import annotations

import logging

from nmt.config.sections import DEFAULT_MAX_UPDATE, TrainConfig
from nmt.optim import Horizon, Progress, Schedule, default_warmup, schedulers
from nmt.storage.checkpoints import CheckpointInfo
from nmt.training.checkpoints.resume import Facts
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup.datasets import Datasets

logger = logging.getLogger("nmt.training")

# What is planned to know the length of a run beforehand: some ten seconds at a microsecond a sentence.
MOST_EPOCHS, MOST_SENTENCES = 1000, 10_000_000


def tell_limits(config: TrainConfig) -> None:
    """Say in the log what nobody asked for: the default limit, a run without an end, a warm-up for want of a length."""
    limits = config.training
    patience = config.validation.patience
    if limits.takes_default_limit:
        earlier = "" if patience is None else f", or before that by --patience {patience}"
        logger.info(
            f"no limit given: training ends after {DEFAULT_MAX_UPDATE:,} updates{earlier}; --max-update, --max-epoch or "
            f"--stop-time-hours sets another, --max-update 0 none"
        )
    elif limits.last_update is None and limits.max_epoch is None:
        if limits.stop_time_hours is None:
            end = "when it is stopped" if patience is None else f"by --patience {patience}, or when it is stopped"
            logger.info(f"training has no limit and ends {end}; Ctrl-C and SIGTERM save first")
        if config.scheduler.warmup_updates is None:
            logger.info(
                f"how many updates the run will have is not known: the warm-up takes {default_warmup(None):,} of them; "
                f"--warmup-updates sets another number"
            )


def number_of_updates(config: TrainConfig, batches: TrainingBatches, datasets: Datasets) -> int | None:
    """How many updates the limits allow. Epochs have the same length, except with a sort window: then they are counted.

    What would take long to count is taken from the mean of the epochs that were: those of a large corpus hardly differ.
    """
    limits, batching = config.training, config.batching
    fits = batching.token_limit is None or batching.skip_long or datasets.longest <= batching.token_limit
    last = limits.last_update
    if limits.max_epoch is None or not fits:
        return last
    counted = 1
    if batching.sort_window is not None:
        counted = min(limits.max_epoch, MOST_EPOCHS, max(1, MOST_SENTENCES // len(datasets.train)))
    made = 0
    for epoch in range(1, counted + 1):
        made += batches.updates_in_epoch(epoch)
        if last is not None and made >= last:
            return last
    by_epochs = made * limits.max_epoch // counted
    return by_epochs if last is None else min(by_epochs, last)


def compare_length(config: TrainConfig, last: CheckpointInfo, begun: Facts, now: int | None) -> None:
    """Warn if the run has become longer or shorter and rates that lie behind would have been others, or if the warm-up
    that it began with has no end any more."""
    planned, warmup_updates = begun.max_update, begun.warmup_updates
    own = config.scheduler.warmup_updates
    if own is None and now is not None and warmup_updates > now:
        logger.warning(
            f"the run began with a warm-up of {warmup_updates} updates, which stays, and now ends after {now}: the rate "
            f"does not reach its peak; --warmup-updates N --reset-lr-scheduler shortens the warm-up"
        )
    if planned is None or now is None or planned == now:
        return
    before, after = (_schedule_of(config, length, warmup_updates) for length in (planned, now))
    made = Progress(last.update, last.epoch, tokens=0)  # schedules that agree on it agree on all before
    if before(made) != after(made):
        logger.warning(
            f"the run was planned with {planned} updates and now has {now}: its learning rates follow the new length, "
            f"and differ from those of a run that had this length from the start"
        )


def _schedule_of(config: TrainConfig, length: int, warmup_updates: int) -> Schedule:
    return schedulers.build(config.scheduler, Horizon(length, 1, config.optimizer.base_rate, warmup_updates))

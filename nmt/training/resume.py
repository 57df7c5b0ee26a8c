"""Going on from a checkpoint: first whether that is what the user means, then putting the tensors back."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from nmt.errors import DataError
from nmt.storage.checkpoints import StoredCheckpoint, TrainingState
from nmt.training.fingerprint import Fingerprint, differences, refuse

logger = logging.getLogger("nmt.training")

RESTART_OF_EPOCH = ("data", "seed", "train_subset", "batching.")  # the position in the data loses its meaning
ACCUMULATION = "batching.update_freq"  # except by this one: the order of batches does not depend on it

VALUES = (
    "run",
    "best",
    "report",
    "optimizer",
    "arithmetic",
    "fingerprint",
    "vocabularies",
    "warmup_updates",
    "precision",
    "computed_on",
    "batches_in_update",
)


def training_state(stored: StoredCheckpoint) -> TrainingState:
    assert stored.training is not None, "the store returns only checkpoints that can be resumed"
    missing = [key for key in VALUES if key not in stored.training.values]
    if missing:
        raise DataError(f"{stored.path} cannot be trained on: its training.json has no {', no '.join(missing)}")
    return stored.training


def check_unchanged(
    stored: StoredCheckpoint, current: Fingerprint, *, vocabularies: str, batches_in_update: int, reset: bool
) -> Mapping[str, str]:
    """What changed since the checkpoint; anything at all is refused unless ``reset``.

    Twice the processes and half the accumulation are no change.
    """
    values = training_state(stored).values
    if values["vocabularies"] != vocabularies:
        raise DataError(
            f"{stored.path} was trained with other vocabularies than those of the corpus; give the corpus that it was "
            f"trained on, or choose another --save-dir"
        )
    changed = differences(values["fingerprint"], current)
    if values["batches_in_update"] == batches_in_update:
        changed.pop(ACCUMULATION, None)
    if changed and not reset:
        raise refuse(changed, str(stored.path))
    for key, change in changed.items():
        logger.warning("going on although %s changed: %s", key, change)
    return changed


def restarts_epoch(changed: Mapping[str, str]) -> bool:
    return any(key.startswith(RESTART_OF_EPOCH) for key in changed if key != ACCUMULATION)

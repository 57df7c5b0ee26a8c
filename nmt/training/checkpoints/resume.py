"""Going on from a checkpoint: first whether that is what the user means, then putting the tensors back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set

from nmt.config.sections import CheckpointConfig
from nmt.errors import DataError
from nmt.storage.checkpoints import StoredCheckpoint, TrainingState
from nmt.training.setup.differences import differences
from nmt.training.setup.fingerprint import Fingerprint, refuse

logger = logging.getLogger("nmt.training")

RESTART_OF_EPOCH = ("data", "seed", "train_subset", "batching.")  # the position in the data loses its meaning
ACCUMULATION = "batching.update_freq"  # except by this one: the order of batches does not depend on it

BEFORE = {"batching.count_padding": True}  # options that runs were trained with before there was a choice

# What a fingerprint has only under a scheduler that follows validations.
VALIDATION = ("valid_subset", "validation.", "search.")

# Options by the flag that lets them change; of two that cover an option the later one is narrower. What else changed needs
# --reset.
RESETS = {
    "reset_dataloader": RESTART_OF_EPOCH,
    "reset_optimizer": ("optimizer.", "parameters.", "training."),
    "reset_lr_scheduler": ("scheduler.", "optimizer.lr"),
    "reset_meters": VALIDATION,
}

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


def due_resets(
    options: CheckpointConfig, stored: StoredCheckpoint, changed: Mapping[str, str], *, other_scores: bool = False
) -> Set[str]:
    """The keys of ``RESETS`` whose state is to begin afresh. A checkpoint that was written under the same flag had its
    turn already, unless the flag lets something change once more: the same command goes on after a stop.

    ``other_scores``: scores mean something else now, under whatever scheduler."""
    section = stored.config.get("checkpoint")
    before = section if isinstance(section, dict) else {}
    given = [name for name in RESETS if getattr(options, name)]
    covering = ([name for name in given if key.startswith(RESETS[name])] for key in changed)
    needed = {names[-1] for names in covering if names}  # the narrowest
    if other_scores:
        needed.add("reset_meters")
    return {name for name in given if name in needed or not before.get(name)}


def check_unchanged(
    stored: StoredCheckpoint,
    current: Fingerprint,
    *,
    vocabularies: str,
    batches_in_update: int,
    options: CheckpointConfig,
) -> Mapping[str, str]:
    """What changed since the checkpoint; refused unless a flag of ``options`` lets it.

    Twice the processes and half the accumulation are no change.
    """
    values = training_state(stored).values
    if values["vocabularies"] != vocabularies:
        raise DataError(
            f"{stored.path} was trained with other vocabularies than those of the corpus; give the corpus that it was "
            f"trained on, or choose another --save-dir"
        )
    before: Fingerprint = {key: value for key, value in BEFORE.items() if key in current} | values["fingerprint"]
    changed = differences(before, current)
    if not all(any(key.startswith(VALIDATION) for key in one) for one in (before, current)):
        # only one of two schedulers follows validations, and it is told of its own: see RunState.validations_before
        changed = {key: change for key, change in changed.items() if not key.startswith(VALIDATION)}
    if values["batches_in_update"] == batches_in_update:
        changed.pop(ACCUMULATION, None)
    allowed = tuple(prefix for name, prefixes in RESETS.items() if getattr(options, name) for prefix in prefixes)
    refused = {key: change for key, change in changed.items() if not (options.reset or key.startswith(allowed))}
    if refused:
        raise refuse(refused, str(stored.path), flags=_flags_for(refused))
    for key, change in changed.items():
        logger.warning("going on although %s changed: %s", key, change)
    return changed


def _flags_for(changed: Mapping[str, str]) -> list[str]:
    """The flags that let all of this change: as few of the special ones as do, or --reset."""
    needed: list[str] = []
    choices = [[name for name, prefixes in RESETS.items() if key.startswith(prefixes)] for key in changed]
    for choice in sorted(choices, key=len):
        if not choice:
            return ["--reset"]
        if not set(choice) & set(needed):
            needed.append(choice[-1])
    return [f"--{name.replace('_', '-')}" for name in needed]


def restarts_epoch(changed: Mapping[str, str]) -> bool:
    return any(key.startswith(RESTART_OF_EPOCH) for key in changed if key != ACCUMULATION)

"""Where a run stands and how it is made; going on from a checkpoint: what changed since, and what begins afresh."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nmt.config.sections import LOSSES, CheckpointConfig, TrainConfig, ValidationConfig
from nmt.errors import DataError, UsageError
from nmt.optim import Horizon, Progress, schedulers
from nmt.storage.checkpoints import StoredCheckpoint, TrainingState
from nmt.training.loop.batches import DataPosition
from nmt.training.setup.options import Fingerprint, differences
from nmt.training.validation import validation_due

logger = logging.getLogger("nmt.training")

RESTART_OF_EPOCH = (
    "data",
    "seed",
    "train_subset",
    "batching.",
    "sampling.",
    "variation.",
)  # the position in the data loses its meaning
# Except by these: the order of batches does not depend on them.
ACCUMULATION = ("batching.update_freq", "batching.tokens_per_update")

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


@dataclass(frozen=True)
class Facts:
    """How a run was begun and is computed; part of ``training.json``."""

    vocabularies: str  # what they are recognised by
    fingerprint: Fingerprint  # all that the parameters depend on
    warmup_updates: int  # of a scheduler that was given none
    max_update: int | None  # how many updates the limits allowed; None: it was not known
    batches_in_update: int
    precision: str
    computed_on: str  # device and precision
    validated_as: Fingerprint  # all that the scores of given parameters depend on

    def lasting(self) -> dict[str, Any]:
        """What a checkpoint keeps when no run can go on from it any more."""
        return {"vocabularies": self.vocabularies, "precision": self.precision, "validated_as": self.validated_as}


@dataclass
class RunState:
    """Where a run stands between two updates."""

    update: int = 0
    epoch: int = 1  # of the last update
    position: DataPosition = field(default_factory=DataPosition)  # of the next one
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_row: int = 0
    interrupted: Sequence[str] | None = None  # a validation was; the reasons of the checkpoint that followed it
    validated: int = 0  # the update that was validated last; before the first one nothing is learned
    validations_before: int = 0  # those of the history that came before the present scheduler, which does not see them

    def spent(self) -> dict[str, Any]:
        """How far the run has come, and at what price."""
        return {name: getattr(self, name) for name in ("update", "epoch", "tokens", "seconds", "skipped")}


VALUES = ("run", "best", "report", "optimizer", "arithmetic", *(member.name for member in fields(Facts)))


@dataclass(frozen=True)
class Past:
    """The checkpoint that a run goes on from, and the options that are others now, with the user's consent."""

    stored: StoredCheckpoint
    training: TrainingState
    facts: Facts
    changed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: StoredCheckpoint) -> Past:
        assert stored.training is not None, "the store returns only checkpoints that can be resumed"
        values = stored.training.values
        missing = [key for key in VALUES if key not in values]
        if missing:
            raise DataError(f"{stored.path} cannot be trained on: its training.json has no {', no '.join(missing)}")
        return cls(stored, stored.training, Facts(**{member.name: values[member.name] for member in fields(Facts)}))

    @property
    def state(self) -> RunState:
        run = self.training.values["run"]
        return RunState(**{**run, "position": DataPosition(**run["position"])})

    def changes(self, *prefixes: str) -> bool:
        """Whether an option is another one now whose name begins like that."""
        return any(key.startswith(prefixes) for key in self.changed)


def past_of(
    stored: StoredCheckpoint,
    current: Fingerprint,
    *,
    vocabularies: str,
    batches_in_update: int,
    options: CheckpointConfig,
) -> Past:
    """What changed since the checkpoint; refused unless a flag of ``options`` lets it. Twice the processes and half the
    accumulation are no change."""
    past = Past.of(stored)
    facts = past.facts
    if facts.vocabularies != vocabularies:
        raise DataError(
            f"{stored.path} was trained with other vocabularies than those of the corpus; give the corpus that it was "
            f"trained on, or choose another --save-dir"
        )
    changed = differences(facts.fingerprint, current)
    if not all(any(key.startswith(VALIDATION) for key in one) for one in (facts.fingerprint, current)):
        # only one of two schedulers follows validations, and it is told of its own: see RunState.validations_before
        changed = {key: change for key, change in changed.items() if not key.startswith(VALIDATION)}
    if facts.batches_in_update == batches_in_update:
        changed = {key: change for key, change in changed.items() if key not in ACCUMULATION}
    allowed = tuple(prefix for name, prefixes in RESETS.items() if getattr(options, name) for prefix in prefixes)
    refused = {key: change for key, change in changed.items() if not (options.reset or key.startswith(allowed))}
    if refused:
        listed = "; ".join(f"{key}: {change}" for key, change in refused.items())
        raise UsageError(
            f"{stored.path} was trained with other settings ({listed}); restore them, choose another --save-dir, or go on "
            f"nevertheless with {' '.join(_flags_for(refused))}"
        )
    for key, change in changed.items():
        logger.warning("going on although %s changed: %s", key, change)
    if facts.batches_in_update != batches_in_update:
        logger.warning(
            f"an update was made of {facts.batches_in_update} batches and now is of {batches_in_update}: the order of "
            f"batches stays, but the course of training changes; as many processes with the same --max-tokens and "
            f"--update-freq or --tokens-per-update would keep it"
        )
    return replace(past, changed=changed)


def due_resets(options: CheckpointConfig, past: Past, other_scores: Mapping[str, str]) -> Set[str]:
    """The keys of ``RESETS`` whose state is to begin afresh. A checkpoint that was written under the same flag had its
    turn already, unless the flag lets something change once more: the same command goes on after a stop.

    ``other_scores``: why scores mean something else now, under whatever scheduler."""
    before = past.stored.config["checkpoint"]
    given = [name for name in RESETS if getattr(options, name)]
    covering = ([name for name in given if key.startswith(RESETS[name])] for key in past.changed)
    needed = {names[-1] for names in covering if names}  # the narrowest
    if other_scores:
        needed.add("reset_meters")
    due = {name for name in given if name in needed or not before[name]}
    if other_scores and "reset_meters" not in due:
        logger.warning(
            "scores so far are of another validation (%s): what is best may not be; --reset-meters forgets them",
            "; ".join(f"{key}: {change}" for key, change in other_scores.items()),
        )
    return due


def other_scores(past: Past, validated_as: Fingerprint, options: ValidationConfig) -> Mapping[str, str]:
    """What makes the scores so far those of another validation."""
    of_translations = ("search.", "validation.") if options.best_metric in LOSSES else ()
    changed = differences(past.facts.validated_as, validated_as)
    return {key: changed[key] for key in changed if key != "computed_on" and not key.startswith(of_translations)}


def origin(options: CheckpointConfig, past: Past) -> str | None:
    """The model that a run began with, which stays noted while it goes on. No other can be named: the parameters are those
    of the checkpoint."""
    named, noted = options.finetune_from_model, past.stored.config["checkpoint"].get("finetune_from_model")
    if named is not None and (noted is None or Path(named).resolve() != Path(noted).resolve()):
        raise UsageError(
            f"{past.stored.path.parent} holds a run that did not begin with {named}: --finetune-from-model is for new runs; "
            f"choose another --save-dir, or leave it out to go on"
        )
    return None if noted is None else str(noted)


def restarts_epoch(changed: Mapping[str, str]) -> bool:
    return any(key.startswith(RESTART_OF_EPOCH) for key in changed if key not in ACCUMULATION)


def compare_length(past: Past, config: TrainConfig, now: int | None) -> None:
    """Warn if the run has become longer or shorter and rates that lie behind would have been others, or if the warm-up
    that it began with has no end any more."""
    planned, warmup_updates = past.facts.max_update, past.facts.warmup_updates
    if config.scheduler.warmup_updates is None and now is not None and warmup_updates > now:
        logger.warning(
            f"the run began with a warm-up of {warmup_updates} updates, which stays, and now ends after {now}: the rate "
            f"does not reach its peak; --warmup-updates N --reset-lr-scheduler shortens the warm-up"
        )
    if planned is None or now is None or planned == now:
        return
    before, after = (
        schedulers.build(config.scheduler, Horizon(length, 1, config.optimizer.base_rate, warmup_updates))
        for length in (planned, now)
    )
    # Schedules that agree on it agree on all before.
    made = Progress(past.stored.info.update, past.stored.info.epoch, tokens=0)
    if before(made) != after(made):
        logger.warning(
            f"the run was planned with {planned} updates and now has {now}: its learning rates follow the new length, "
            f"and differ from those of a run that had this length from the start"
        )


def compare_validations(past: Past, config: TrainConfig) -> None:
    """Warn if a run that had ended goes on, and what its last validation decides would have come later."""
    if "final" not in past.stored.info.reasons:
        return
    state = past.state
    ended_epoch = state.epoch if state.position.batch == 0 else None
    decides = config.validation.patience is not None or config.scheduler.uses_validation
    if decides and not validation_due(config.validation, state.update, ended_epoch):
        logger.warning(
            f"the run had ended at update {state.update} with a validation that a longer run would not have had there: "
            f"patience and rates that depend on validations differ from those of a run that had this length from the start"
        )


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

"""Resume a run from a checkpoint: compare its options with those of now, and decide what starts afresh."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path

from nmt.config.sections import LOSSES, CheckpointConfig, TrainConfig, ValidationConfig, metric_of
from nmt.errors import DataError, UsageError, quantity
from nmt.models.loading import find_base
from nmt.optim import Horizon, Progress, schedulers
from nmt.storage.adapted import AdapterBase
from nmt.storage.checkpoints import StoredCheckpoint, TrainingState
from nmt.training.checkpoints.fingerprint import COMPONENTS, Fingerprint, differences
from nmt.training.checkpoints.run_state import DataPosition, RunSettings, RunState

logger = logging.getLogger("nmt.training")

# Changes of these options make the position in the data meaningless,
RESTART_OF_EPOCH = ("data", "seed", "train_subset", "batching.", "sampling.", "variation.")
# except these two: batches and their order do not depend on them. If they change, the epoch continues under --reset but
# restarts under --reset-dataloader.
ACCUMULATION = ("batching.update_freq", "batching.tokens_per_update")

# Only under a scheduler that follows validations does a fingerprint hold these options.
VALIDATION = ("valid_subset", "validation.", "search.")

# Options by the flag that lets them change; of two flags that cover an option the later one is narrower. Changes of other
# options need --reset.
RESETS = {
    "reset_dataloader": RESTART_OF_EPOCH,
    "reset_optimizer": ("optimizer.", "parameters.", "training."),
    "reset_lr_scheduler": ("scheduler.", "optimizer.lr"),
    "reset_meters": VALIDATION,
}

# Changes that no flag allows: what an adapter stores depends on them.
ADAPTER = ("parameters.lora_rank", "parameters.lora_alpha", "parameters.lora_on")
TRAINED = ("parameters.train_only", "parameters.freeze")

MOST_SHOWN, MOST_SHOWN_OF_ONE = 6, 80  # options in a message, and characters of each

_SETTINGS = {f.name: f.default is f.default_factory is MISSING for f in fields(RunSettings)}  # whether it is needed
VALUES = ("run", "best", "report", "optimizer", "arithmetic", *(name for name, needed in _SETTINGS.items() if needed))


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint that a run resumes from, and the options that differ now, by name."""

    stored: StoredCheckpoint
    training: TrainingState
    settings: RunSettings
    changed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: StoredCheckpoint) -> ResumePoint:
        assert stored.training is not None, "the store returns only checkpoints that can be resumed"
        values = stored.training.values
        missing = [key for key in VALUES if key not in values]
        if missing:
            raise DataError(f"{stored.path} cannot be resumed: its training.json lacks {', '.join(missing)}")
        settings = RunSettings(**{name: values[name] for name in _SETTINGS if name in values})
        return cls(stored, stored.training, settings)

    @property
    def state(self) -> RunState:
        run = self.training.values["run"]
        return RunState(**{**run, "position": DataPosition(**run["position"])})

    def changes(self, *prefixes: str) -> bool:
        """Whether an option changed whose name begins with one of ``prefixes``."""
        return any(key.startswith(prefixes) for key in self.changed)

    @property
    def restarts_epoch(self) -> bool:
        """Whether the epoch begins again, because the position in the data has lost its meaning."""
        return any(key.startswith(RESTART_OF_EPOCH) for key in self.changed if key not in ACCUMULATION)


def with_first_update_rule(config: TrainConfig, stored: StoredCheckpoint) -> TrainConfig:
    """Return the options with the update rule that the run began with, unless a flag lets the optimizer change."""
    if config.checkpoint.reset or config.checkpoint.reset_optimizer:
        return config
    optimizer = config.optimizer.resumed(stored.config["optimizer"])
    if optimizer != config.optimizer:
        logger.info("kept the update rule that the run began with; --reset-optimizer changes it")
    return replace(config, optimizer=optimizer)


def resume_point(
    stored: StoredCheckpoint,
    current: Fingerprint,
    *,
    defaults: Fingerprint,
    vocabularies: str,
    batches_in_update: int,
    options: CheckpointConfig,
) -> ResumePoint:
    """Compare a checkpoint with the options of now. Refuse changes that no flag of ``options`` allows.

    ``update_freq`` and ``tokens_per_update`` may change if an update keeps its number of batches. If only the number of
    processes changes that number, this is a warning. ``defaults``: of options that are newer than the checkpoint.
    """
    point = ResumePoint.of(stored)
    settings = point.settings
    if settings.vocabularies != vocabularies:
        raise DataError(
            f"{stored.path} and the corpus have different vocabularies; name the corpus that the run was trained on, or "
            f"choose another --save-dir"
        )
    base = AdapterBase.of(settings.base, "the run")
    before = {**defaults, **settings.fingerprint, "parameters.lora_alpha": base and base.alpha}
    changed = differences(before, current)
    if not all(any(key.startswith(VALIDATION) for key in names) for names in (settings.fingerprint, current)):
        # only one of two schedulers follows validations; RunState.validations_before hides the others' from it
        changed = {key: change for key, change in changed.items() if not key.startswith(VALIDATION)}
    if settings.batches_in_update == batches_in_update:
        changed = {key: change for key, change in changed.items() if key not in ACCUMULATION}
    if fixed := {key: changed[key] for key in changed if key in ADAPTER + (TRAINED if settings.base else ())}:
        raise UsageError(
            f"{stored.path} is of a run with other options, which cannot change on resume ({_listed(fixed)}); give the old "
            f"values, or start a new run: --finetune-from-model {stored.path} with another --save-dir"
        )
    allowed = tuple(prefix for name, prefixes in RESETS.items() if getattr(options, name) for prefix in prefixes)
    refused = {key: change for key, change in changed.items() if not (options.reset or key.startswith(allowed))}
    if refused:
        raise UsageError(
            f"{stored.path} was trained with other options ({_listed(refused)}); choose another --save-dir, or resume "
            f"with {' '.join(_flags_for(refused))}"
        )
    for key, change in changed.items():
        logger.warning("resuming although %s changed: %s", key, change)
    point = replace(point, changed=changed)
    if settings.batches_in_update != batches_in_update:
        stays = "" if options.reset_dataloader or point.restarts_epoch else "the order of micro-batches stays, but "
        logger.warning(
            f"an update had {quantity(settings.batches_in_update, 'micro-batch', 'micro-batches')} and now has "
            f"{batches_in_update}: {stays}the course of training changes; to keep it, use as many processes as before, with "
            f"the same --max-tokens and --update-freq or --tokens-per-update"
        )
    return point


def due_resets(options: CheckpointConfig, point: ResumePoint, other_scores: Mapping[str, str]) -> Set[str]:
    """Return the keys of ``RESETS`` whose state starts afresh.

    If the checkpoint was written under the same flag, that state was reset before, unless another change needs the flag: the
    same command resumes after a stop. ``other_scores``: why scores have another meaning now.
    """
    before = point.stored.config["checkpoint"]
    flags = [name for name in RESETS if getattr(options, name)]
    covering = ([name for name in flags if key.startswith(RESETS[name])] for key in point.changed)
    needed = {names[-1] for names in covering if names}  # the narrowest
    if other_scores:
        needed.add("reset_meters")
    due = {name for name in flags if name in needed or not before[name]}
    if other_scores and "reset_meters" not in due:
        logger.warning(
            "earlier scores are from a different validation (%s): the best checkpoint may be wrong; --reset-meters discards "
            "these scores",
            "; ".join(f"{key}: {change}" for key, change in other_scores.items()),
        )
    return due


def other_scores(point: ResumePoint, validated_as: Fingerprint, options: ValidationConfig) -> Mapping[str, str]:
    """Return the changes that make the scores so far incomparable with those of now."""
    of_translations = ("search.", "validation.") if metric_of(options.best_metric) in LOSSES else ()
    changed = differences(point.settings.validated_as, validated_as)
    return {key: changed[key] for key in changed if key != "computed_on" and not key.startswith(of_translations)}


def origin(options: CheckpointConfig, point: ResumePoint) -> str | None:
    """Return the model that the run was fine-tuned from, as its checkpoints name it. Refuse another model: the parameters
    are those of the checkpoint. ``with_base`` checks the base model of an adapter."""
    named, stored = options.finetune_from_model, point.stored.config["checkpoint"].get("finetune_from_model")
    if named is not None and not point.settings.base and not _is_same(named, stored):
        raise UsageError(
            f"the run in {point.stored.path.parent} did not start from {named}; omit --finetune-from-model to resume "
            f"it, or choose another --save-dir"
        )
    return None if stored is None else str(stored)


def with_base(config: TrainConfig, point: ResumePoint) -> TrainConfig:
    """Return the options with the path of the base model, if the run trains an adapter. Refuse another model."""
    base, named = AdapterBase.of(point.settings.base, "the run"), config.checkpoint.finetune_from_model
    if base is None or named is None:
        return config
    path, stored = find_base(base, point.stored.path, named), origin(config.checkpoint, point)
    if not Path(path).is_relative_to(named) and not _is_same(named, stored):
        raise UsageError(
            f"the adapter in {point.stored.path.parent} was not trained on {named}; resume it with --finetune-from-model "
            f"{path}, or choose another --save-dir"
        )
    return replace(config, checkpoint=replace(config.checkpoint, finetune_from_model=path))


def _is_same(named: str, stored: str | None) -> bool:
    return stored is not None and Path(named).resolve() == Path(stored).resolve()


def compare_length(point: ResumePoint, config: TrainConfig, now: int | None) -> None:
    """Warn if the length of the run changed and earlier learning rates would have differed, or if the warmup that the run
    began with does not end any more."""

    def horizon(length: int | None) -> Horizon:
        return Horizon(length, 1, config.optimizer.base_rate, point.settings.warmup_updates)

    planned, warmup = point.settings.max_update, config.scheduler.warmup_of_run(horizon(now))
    if now is not None and warmup > now:  # a default one: a longer `warmup_updates` was refused
        logger.warning(
            f"the run keeps its warmup of {quantity(warmup, 'update')} but now ends after {now}: the learning rate does not "
            f"reach its peak; --warmup-updates N --reset-lr-scheduler shortens the warmup"
        )
    if planned is None or now is None or planned == now:
        return
    before, after = (schedulers.build(config.scheduler, horizon(length)) for length in (planned, now))
    # Schedules that agree on the last update agree on all before.
    made = Progress(point.stored.info.update, point.stored.info.epoch, tokens=0)
    if before(made) != after(made):
        logger.warning(
            f"the run was planned with {quantity(planned, 'update')} and now has {now}: its learning rates follow the new "
            f"length, so they differ from those of an uninterrupted run of this length"
        )


def compare_validations(point: ResumePoint, config: TrainConfig) -> None:
    """Warn if a finished run resumes, and a longer run would not have made its last validation, which decides something."""
    if "final" not in point.stored.info.reasons:
        return
    state = point.state
    ended_epoch = state.epoch if state.position.batch == 0 else None
    decides = config.validation.patience is not None or config.scheduler.uses_validation
    if decides and not config.validation.is_due(state.update, ended_epoch):
        logger.warning(
            f"the run ended at update {state.update} with an extra validation: patience, and learning rates that depend on "
            f"validations, differ from those of an uninterrupted run of this length"
        )


def _listed(changed: Mapping[str, str]) -> str:
    """Return the first changes as text. If a component was replaced, only its name is listed."""
    replaced = tuple(f"{component}." for component in COMPONENTS if f"{component}.name" in changed)
    shown = [
        f"{key}: {change}" for key, change in changed.items() if key.endswith(".name") or not key.startswith(replaced)
    ]
    shown = [text if len(text) <= MOST_SHOWN_OF_ONE else f"{text[:MOST_SHOWN_OF_ONE]}..." for text in shown]
    more = [f"{len(shown) - MOST_SHOWN} more"] if len(shown) > MOST_SHOWN else []
    return "; ".join([*shown[:MOST_SHOWN], *more])


def _flags_for(changed: Mapping[str, str]) -> list[str]:
    """Return the fewest flags that allow all changes, or --reset."""
    needed: list[str] = []
    choices = [[name for name, prefixes in RESETS.items() if key.startswith(prefixes)] for key in changed]
    for choice in sorted(choices, key=len):
        if not choice:
            return ["--reset"]
        if not set(choice) & set(needed):
            needed.append(choice[-1])
    return [f"--{name.replace('_', '-')}" for name in needed]

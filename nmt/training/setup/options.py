"""The options of a run: which cannot go together, what it is recognised by, what differs between two of them, and the
metrics of its validations by name.

Limits, rhythms of saving and logging, the device and the number of threads are free to change when a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nmt.config.checks import Rules, refuse
from nmt.config.choices import Strategy
from nmt.config.option import groups_of
from nmt.config.plain import to_plain
from nmt.config.roles import CriterionConfig, OptimizerConfig, SchedulerConfig
from nmt.config.sampling import SamplingConfig
from nmt.config.sections import AUTO, LOSSES, ParametersConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.config.variation import VariationConfig
from nmt.errors import UsageError, did_you_mean
from nmt.optim import Horizon, default_warmup, schedulers
from nmt.optim.config import AdamThenSgdConfig
from nmt.optim.schedules import ConstantConfig
from nmt.scoring import Scorer, TextOptions, scorers
from nmt.scoring.learned import Learned
from nmt.storage.checkpoints import FORMAT, KIND
from nmt.storage.files import read_manifest
from nmt.storage.run_folder import MODEL, resolve

Fingerprint = dict[str, Any]  # options, and what the data is recognised by, under their names

# Options of validation that the best-checkpoint metric does not depend on.
_WITHOUT_EFFECT = ("metrics", "samples", "patience")

COMPONENTS = ("model", "criterion", "optimizer", "scheduler")

# Options whose values are checksums.
_OTHERS = {
    "data": "the corpus or its vocabulary is another one",
    "validation.data": "the validation data is another one",
    "criterion.teacher": "it has other parameters, or the run folder another best checkpoint",
}


def check(config: TrainConfig, longest: tuple[int, int] | None, max_update: int | None) -> None:
    """Refuse a configuration, with all that is wrong with it in one message. ``longest``: pieces of the longest source and
    of the longest target of training; None: no corpus is open. ``max_update``: estimated from the epochs where only these
    are limited."""
    refuse(*_what_is_missing(config), *_rates(config, max_update), *_processes(config), *_rest(config, longest))


def _what_is_missing(config: TrainConfig) -> Rules:
    missing = [role for role in COMPONENTS if getattr(config, role) is None]
    translates = config.validation.metrics or config.validation.samples
    yield not config.data, "no corpus is given; name the folder that nmt-preprocess wrote"
    yield missing, f"no {', no '.join(missing)} is chosen"
    yield (
        translates and config.search is None,
        "no search is chosen to translate the validation set; set validation.samples=0 if you want none",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative"


def _rates(config: TrainConfig, max_update: int | None) -> Rules:
    """The learning rate, and what may stand in for a schedule."""
    optimizer, scheduler = config.optimizer or OptimizerConfig(), config.scheduler or SchedulerConfig()
    warmup, ema_decay = scheduler.warmup_updates, config.training.ema_decay
    yield (
        warmup is not None and max_update is not None and warmup > max_update,
        f"scheduler.warmup_updates={warmup} is more than the {max_update} updates of the whole run; lower "
        f"--warmup-updates, or train longer (--max-update or --max-epoch)",
    )
    yield (
        scheduler.sets_rate and optimizer.lr is not None,
        f"optimizer.lr={optimizer.lr} has no effect: this scheduler computes the rate from the model's width; leave --lr "
        f"out and use scheduler.factor, or choose --lr-scheduler inverse_sqrt",
    )
    if isinstance(optimizer, AdamThenSgdConfig):
        yield (
            scheduler.sets_rate,
            f"optimizer.sgd_lr={optimizer.sgd_lr} has no effect: this scheduler computes one rate from the model's width, "
            f"and this optimizer needs two; choose --lr-scheduler halving or constant",
        )
    yield (
        optimizer.schedule_free and type(scheduler) not in (SchedulerConfig, ConstantConfig),
        "this optimizer averages weights in place of lowering the rate; choose --lr-scheduler constant, with "
        "--warmup-updates",
    )
    yield (
        optimizer.schedule_free and ema_decay is not None,
        f"training.ema_decay={ema_decay}, but this optimizer averages weights itself; leave --ema-decay out",
    )
    counted_later = max_update is None and config.training.max_epoch is not None
    if config.scheduler is not None and not counted_later:
        try:
            schedulers.build(scheduler, Horizon(max_update, 1, optimizer.base_rate, default_warmup(max_update)))
        except UsageError as error:
            yield True, str(error)


def _processes(config: TrainConfig) -> Rules:
    """What each process holds, and what is recorded there."""
    divided, training = config.distributed.strategy is Strategy.fsdp, config.training
    yield (
        divided and config.optimizer is not None and config.optimizer.whole_matrices,
        "this optimizer looks at whole matrices, of which with distributed.strategy=fsdp each process holds some rows; "
        "choose another --optimizer, or --distributed-strategy ddp",
    )
    yield (
        divided and config.batching.max_tokens == AUTO,
        "batching.max_tokens=auto tries the whole model in one process, which distributed.strategy=fsdp is there to avoid; "
        "give a number (--max-tokens)",
    )
    yield (
        training.cuda_graphs and not training.compile,
        "training.cuda_graphs=true replays compiled layers; add --compile",
    )
    yield (
        training.cuda_graphs and training.checkpoint_activations,
        "training.cuda_graphs=true and training.checkpoint_activations=true exclude each other: layers that run again in "
        "the backward pass are not recorded; leave --cuda-graphs or --checkpoint-activations out",
    )


def _rest(config: TrainConfig, longest: tuple[int, int] | None) -> Rules:
    """Clipping, other models, validation and batches."""
    training, validation, batching = config.training, config.validation, config.batching
    criterion, scheduler = config.criterion or CriterionConfig(), config.scheduler or SchedulerConfig()
    yield (
        criterion.needs_alignments and config.variation.is_on,
        "this criterion needs word alignments, which are known for the stored pieces only; leave out --bpe-dropout, "
        "--unigram-alpha and --augment, or choose another --criterion",
    )
    yield (
        training.clip_norm and training.clip_value,
        f"training.clip_norm={training.clip_norm} and training.clip_value={training.clip_value} exclude each other; set one "
        f"of --clip-norm and --clip-value",
    )
    yield (
        criterion.teacher == "",
        "this criterion learns from a teacher; name its run folder or checkpoint with --teacher",
    )
    yield (
        config.checkpoint.finetune_map_vocabulary and config.checkpoint.finetune_from_model is None,
        "checkpoint.finetune_map_vocabulary=true maps nothing; name a trained model with --finetune-from-model",
    )
    yield (
        validation.patience is not None and not validation.is_on,
        f"validation.patience={validation.patience}, but validation is switched off; set --validate-interval 1",
    )
    yield (
        scheduler.uses_validation and not validation.is_on,
        "this scheduler follows the validations, but validation is switched off; set --validate-interval 1",
    )
    if longest is not None and batching.max_tokens != AUTO and not batching.skip_long:
        for option, (limit, needed) in batching.exceeded(longest).items():
            yield (
                True,
                f"batching.{option}={limit} is less than the {needed} pieces of the longest training sentence; raise "
                f"--{option.replace('_', '-')}, or leave such pairs out with --skip-long",
            )


def fingerprint(config: TrainConfig, data: Sequence[str], valid_data: Sequence[str]) -> Fingerprint:
    """All that the parameters after update n depend on, by option name. ``data``: the identity of each corpus;
    ``valid_data``: of its validation split.

    A teacher counts by what it is, not by where it lies: it may move, and a run folder may get a better checkpoint.
    """
    tree = to_plain(config)
    parts = {role: tree[role] for role in (*COMPONENTS, "batching")}
    parts["criterion"] = _criterion(config, tree)
    unusual = _unusual(tree["training"], TrainingConfig(), ("clip_value", "ema_decay"))
    parts["training"] = {"clip_norm": config.training.clip_norm} | unusual
    parts["sampling"] = _unusual(tree["sampling"], SamplingConfig(), tree["sampling"])
    parts["parameters"] = _unusual(tree["parameters"], ParametersConfig(), tree["parameters"])
    if config.variation.is_on:
        decides = [key for key in tree["variation"] if key != "readers"]
        parts["variation"] = _unusual(tree["variation"], VariationConfig(), decides)
    if config.scheduler.uses_validation:
        parts["valid_subset"] = config.valid_subset
        parts["validation"] = {key: value for key, value in tree["validation"].items() if key not in _WITHOUT_EFFECT}
        parts["validation"]["data"] = list(valid_data)
        if config.validation.best_metric != "loss":
            parts["search"] = tree["search"]
    return {"seed": config.seed, "train_subset": config.train_subset, "data": list(data), **dict(_flatten(parts))}


def validation_fingerprint(config: TrainConfig, data: Sequence[str], computed_on: str) -> Fingerprint:
    """All that the scores of given parameters depend on. ``data``: the identity of each validation split."""
    tree = to_plain(config)
    parts = {"criterion": _criterion(config, tree), "search": tree["search"]}
    parts["validation"] = {key: tree["validation"][key] for key in ("tokenize", "lowercase", "max_sentences")}
    return {"data": list(data), "computed_on": computed_on, **dict(_flatten(parts))}


def _unusual(given: Mapping[str, Any], defaults: object, keys: Iterable[str]) -> dict[str, Any]:
    """Options that are not at their defaults; at them they do nothing."""
    usual = to_plain(defaults)
    return {key: given[key] for key in keys if given[key] != usual[key]}


def _criterion(config: TrainConfig, tree: Mapping[str, Any]) -> Any:
    """A teacher counts by what its parameters are recognised by."""
    if not config.criterion.teacher:
        return tree["criterion"]
    files = read_manifest(resolve(config.criterion.teacher), KIND, FORMAT)["files"]
    return {**tree["criterion"], "teacher": str(files[MODEL]["sha256"])}


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        yield from _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, str]:
    """What changed: option -> ``old -> new``."""
    changed: dict[str, str] = {}
    for key in dict.fromkeys((*current, *stored)):
        if stored.get(key) != current.get(key):
            old, new = ("null" if one.get(key) is None else str(one[key]) for one in (stored, current))
            changed[key] = _OTHERS.get(key, f"{old} -> {new}")
    return changed


def changed_options(config: TrainConfig) -> dict[str, Any]:
    """Those that the user chose, by key: other than their defaults. The name of a component always counts; its options are
    compared with its own defaults."""
    changed: dict[str, Any] = {}
    defaults, groups = to_plain(TrainConfig()), groups_of(TrainConfig)
    for key, value in to_plain(config).items():
        default = defaults.get(key)
        if key in groups and value is not None:
            changed[key], default = value.get("name"), to_plain(type(getattr(config, key))())
        if key not in groups or value is not None:
            usual = dict(_flatten({key: default}))
            changed |= {name: one for name, one in _flatten({key: value}) if name not in usual or one != usual[name]}
    return changed


def build_scorers(options: ValidationConfig) -> dict[str, Scorer]:
    text = TextOptions(options.tokenize, options.lowercase)
    built = {name: scorers.build(scorers.config_class(name)(), text) for name in options.metrics}
    for name, scorer in built.items():
        if isinstance(scorer, Learned):
            raise UsageError(
                f"validation.metrics={name} reads the sources, too, which only nmt-score gives it; leave it out"
            )
    return built


def higher_is_better(metric: str, built: Mapping[str, Scorer] | None = None) -> bool:
    """Of ``loss`` and its kin, or of a scorer; without those that are ``built``, one is built to ask it."""
    if metric in LOSSES:
        return False
    if built is None:
        built = build_scorers(ValidationConfig(metrics=[metric]))
    return built[metric].higher_is_better


def check_metric(metric: str, option: str) -> None:
    known = (*LOSSES, *scorers.names())
    if metric not in known:
        raise UsageError(
            f"{option}={metric} is no metric of a validation{did_you_mean(metric, known)}; there are: {', '.join(known)}"
        )

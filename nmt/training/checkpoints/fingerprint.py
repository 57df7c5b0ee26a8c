"""Compare the options of a run with those of a checkpoint, and with their defaults.

A resumed run may change its limits, its intervals of saving and logging, the device and the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.config.option import groups_of
from nmt.config.plain import flattened, to_plain
from nmt.config.sampling import CorpusSamplingConfig
from nmt.config.sections import ParametersConfig, TrainConfig, TrainingConfig
from nmt.config.variation import VariationConfig
from nmt.data.text.parallel import require_file
from nmt.hub import checkpoint_at
from nmt.storage.checkpoints import FORMAT, KIND
from nmt.storage.files import read_manifest, sha256
from nmt.storage.run_folder import MODEL

Fingerprint = dict[str, Any]  # options and checksums of data, by option name

COMPONENTS = ("model", "criterion", "optimizer", "scheduler")

# Options of validation that the best-checkpoint metric does not depend on.
_WITHOUT_EFFECT = ("metrics", "samples", "patience")

# Messages for options whose values are checksums.
_CHECKSUMS = {
    "data": "the corpus or its vocabulary changed",
    "validation.data": "the validation data changed",
    "parameters.source_embeddings": "the file or --freeze-embeddings changed",
    "parameters.target_embeddings": "the file or --freeze-embeddings changed",
    "criterion.teacher": "its parameters changed, or its run folder has a new best checkpoint",
}


def fingerprint(config: TrainConfig, data: Sequence[str], valid_data: Sequence[str]) -> Fingerprint:
    """Return everything that the parameters after update n depend on, by option name.

    ``data``: the checksum of each corpus; ``valid_data``: of its validation split. A teacher counts by the checksum of its
    parameters: its folder may move, and a run folder may get a better checkpoint.
    """
    tree = to_plain(config)
    options = {role: tree[role] for role in (*COMPONENTS, "batching")}
    options["criterion"] = _criterion(config, tree)
    changed = _changed(tree["training"], TrainingConfig(), ("clip_value", "ema_decay"))
    options["training"] = {"clip_norm": config.training.clip_norm} | changed
    options["sampling"] = _changed(tree["sampling"], CorpusSamplingConfig(), tree["sampling"])
    options["parameters"] = _changed(tree["parameters"], ParametersConfig(), tree["parameters"])
    if config.parameters.lora_rank is not None:
        options["parameters"]["lora_alpha"] = config.parameters.alpha
    if config.parameters.freeze_embeddings:  # a resumed run reads again which rows are frozen
        files = {name: options["parameters"].get(name) for name in ("source_embeddings", "target_embeddings")}
        options["parameters"] |= {name: sha256(require_file(Path(path))) for name, path in files.items() if path}
    if config.variation.is_on:
        names = [name for name in tree["variation"] if name != "readers"]
        options["variation"] = _changed(tree["variation"], VariationConfig(), names)
    if config.scheduler.uses_validation:
        options["valid_subset"] = config.valid_subset
        options["validation"] = {key: value for key, value in tree["validation"].items() if key not in _WITHOUT_EFFECT}
        options["validation"]["data"] = list(valid_data)
        if config.validation.best_metric != "loss":
            options["search"] = tree["search"]
    return {"seed": config.seed, "train_subset": config.train_subset, "data": list(data), **flattened(options)}


def validation_fingerprint(config: TrainConfig, data: Sequence[str], computed_on: str) -> Fingerprint:
    """Return everything that the scores of given parameters depend on. ``data``: the checksum of each validation split."""
    tree = to_plain(config)
    options = {"criterion": _criterion(config, tree), "search": tree["search"]}
    options["validation"] = {key: tree["validation"][key] for key in ("tokenize", "lowercase", "max_sentences")}
    return {"data": list(data), "computed_on": computed_on, **flattened(options)}


def default_options(config: TrainConfig) -> Fingerprint:
    """Return the defaults of components and batches: the values of options that are newer than a checkpoint."""
    return flattened({role: to_plain(type(getattr(config, role))()) for role in (*COMPONENTS, "batching")})


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that differ, each with ``old -> new``."""
    changed: dict[str, str] = {}
    for key in dict.fromkeys((*current, *stored)):
        if stored.get(key) != current.get(key):
            old, new = ("null" if values.get(key) is None else str(values[key]) for values in (stored, current))
            changed[key] = _CHECKSUMS.get(key, f"{old} -> {new}")
    return changed


def changed_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options that differ from their defaults, by key. The name of a component always counts; its options are
    compared with the component's own defaults."""
    changed: dict[str, Any] = {}
    defaults, groups = to_plain(TrainConfig()), groups_of(TrainConfig)
    for key, value in to_plain(config).items():
        default = defaults.get(key)
        if key in groups and value is not None:
            changed[key], default = value.get("name"), to_plain(type(getattr(config, key))())
        if key not in groups or value is not None:
            usual, current = flattened({key: default}), flattened({key: value})
            changed |= {name: option for name, option in current.items() if name not in usual or option != usual[name]}
    return changed


def _changed(options: Mapping[str, Any], defaults: object, keys: Iterable[str]) -> dict[str, Any]:
    """Return the options that differ from their defaults, which have no effect."""
    usual = to_plain(defaults)
    return {key: options[key] for key in keys if options[key] != usual[key]}


def _criterion(config: TrainConfig, tree: Mapping[str, Any]) -> Any:
    """Return the options of the criterion, with the checksum of a teacher's parameters instead of its path."""
    if not config.criterion.teacher:
        return tree["criterion"]
    files = read_manifest(checkpoint_at(config.criterion.teacher), KIND, FORMAT)["files"]
    return {**tree["criterion"], "teacher": str(files[MODEL]["sha256"])}

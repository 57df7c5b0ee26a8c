"""What must not change between the start of a run and its continuation, and saying so when it did.

Limits, rhythms of saving and logging, the device and the number of threads are free to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nmt.config.plain import to_plain
from nmt.config.sections import ParametersConfig, TrainConfig, TrainingConfig
from nmt.training.checkpoints.run_state import Fingerprint
from nmt.training.loop.precision import Arithmetic
from nmt.training.setup.other_models import identity

# Options of validation that the best-checkpoint metric does not depend on.
_WITHOUT_EFFECT = ("metrics", "samples", "patience")

_TRAINING = ("clip_value", "ema_decay")

COMPONENTS = ("model", "criterion", "optimizer", "scheduler")


def fingerprint(config: TrainConfig, data: Sequence[str], valid_data: Sequence[str]) -> Fingerprint:
    """All that the parameters after update n depend on, by option name. ``data``: the identity of each corpus;
    ``valid_data``: of its validation split.

    A teacher counts by what it is, not by where it lies: it may move, and a run folder may get a better checkpoint.
    """
    tree = to_plain(config)
    parts = {role: tree[role] for role in COMPONENTS}
    parts["criterion"] = _criterion(config, tree)
    parts["batching"] = tree["batching"]
    parts["training"] = {"clip_norm": config.training.clip_norm} | _unusual(
        tree["training"], TrainingConfig(), _TRAINING
    )
    parts["parameters"] = _unusual(tree["parameters"], ParametersConfig(), tree["parameters"])
    if config.scheduler.uses_validation:
        parts["valid_subset"] = config.valid_subset
        parts["validation"] = {key: value for key, value in tree["validation"].items() if key not in _WITHOUT_EFFECT}
        parts["validation"]["data"] = list(valid_data)
        if config.validation.best_metric != "loss":
            parts["search"] = tree["search"]
    return {
        "seed": config.seed,
        "train_subset": config.train_subset,
        "data": list(data),
        **dict(_flatten(parts)),
    }


def validation_fingerprint(config: TrainConfig, data: Sequence[str], arithmetic: Arithmetic) -> Fingerprint:
    """All that the scores of given parameters depend on. ``data``: the identity of each validation split."""
    tree = to_plain(config)
    parts = {"criterion": _criterion(config, tree), "search": tree["search"]}
    parts["validation"] = {key: tree["validation"][key] for key in ("tokenize", "lowercase", "max_sentences")}
    return {"data": list(data), "computed_on": str(arithmetic), **dict(_flatten(parts))}


def _unusual(given: Mapping[str, Any], defaults: object, keys: Iterable[str]) -> dict[str, Any]:
    """Options that are not at their defaults; at them they do nothing."""
    usual = to_plain(defaults)
    return {key: given[key] for key in keys if given[key] != usual[key]}


def _criterion(config: TrainConfig, tree: Mapping[str, Any]) -> Any:
    if config.criterion.teacher:
        return {**tree["criterion"], "teacher": identity(config.criterion.teacher)}
    return tree["criterion"]


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        leaves += _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return leaves

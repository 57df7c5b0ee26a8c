"""What must not change between the start of a run and its continuation, and saying so when it did.

Limits, rhythms of saving and logging, the device and the number of threads are free to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nmt.config.parameters import ParametersConfig
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError
from nmt.training.loop.precision import Arithmetic
from nmt.training.setup.other_models import identity

Fingerprint = dict[str, Any]

# Options of validation that the best-checkpoint metric does not depend on.
_WITHOUT_EFFECT = ("metrics", "samples", "patience")

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
    parts["training"] = {"clip_norm": config.training.clip_norm}
    if config.training.clip_value:  # runs from before this option go on
        parts["training"]["clip_value"] = config.training.clip_value
    if config.training.ema_decay is not None:
        parts["training"]["ema_decay"] = config.training.ema_decay
    usual = to_plain(ParametersConfig())  # runs from before these options go on
    parts["parameters"] = {key: value for key, value in tree["parameters"].items() if value != usual[key]}
    if getattr(config.scheduler, "uses_validation", False):
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


def refuse(changed: Mapping[str, str], checkpoint: str, *, flags: Sequence[str]) -> UsageError:
    listed = "; ".join(f"{key}: {change}" for key, change in changed.items())
    return UsageError(
        f"{checkpoint} was trained with other settings ({listed}); restore them, choose another --save-dir, or go on "
        f"nevertheless with {' '.join(flags)}"
    )


def _criterion(config: TrainConfig, tree: Mapping[str, Any]) -> Any:
    if getattr(config.criterion, "teacher", None):
        return {**tree["criterion"], "teacher": identity(config.criterion.teacher)}
    return tree["criterion"]


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        leaves += _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return leaves

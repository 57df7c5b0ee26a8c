"""The figures of a validation by name: which there are, what computes them, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping

from nmt.config.sections import LOSSES, ValidationConfig
from nmt.errors import UsageError, did_you_mean
from nmt.scoring import Scorer, TextOptions, scorers


def build_scorers(options: ValidationConfig) -> dict[str, Scorer]:
    text = TextOptions(options.tokenize, options.lowercase)
    return {name: scorers.build(scorers.config_class(name)(), text) for name in options.metrics}


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

"""The metrics of validations, by name: losses and scorers of translations."""

from __future__ import annotations

from collections.abc import Mapping

from nmt.config.sections import LOSSES, ValidationConfig, metric_of
from nmt.errors import UsageError, did_you_mean
from nmt.scoring import Scorer, TextOptions, scorers
from nmt.scoring.learned import Learned


def build_scorers(options: ValidationConfig) -> dict[str, Scorer]:
    text = TextOptions(options.tokenize, options.lowercase)
    built = {name: scorers.build(scorers.config_class(name)(), text) for name in options.metrics}
    for name, scorer in built.items():
        if isinstance(scorer, Learned):
            raise UsageError(f"validation.metrics={name} needs the sources, which only nmt-score provides; omit it")
    return built


def higher_is_better(metric: str, built: Mapping[str, Scorer] | None = None) -> bool:
    """Whether a higher value of a metric is better. ``built``: scorers by name; None: the metric is built here."""
    metric = metric_of(metric)
    if metric in LOSSES:
        return False
    if built is None:
        built = build_scorers(ValidationConfig(metrics=[metric]))
    return built[metric].higher_is_better


def check_metric(metric: str, option: str) -> None:
    known, name = (*LOSSES, *scorers.names()), metric_of(metric)
    if name not in known:
        raise UsageError(
            f"{option}={metric} is not a validation metric{did_you_mean(name, known)}; there are: {', '.join(known)}"
        )

"""COMET and MetricX where no sources are."""

from __future__ import annotations

import pytest

from nmt.config.sections import ValidationConfig
from nmt.errors import UsageError
from nmt.scoring import TextOptions, scorers
from nmt.training.setup.options import build_scorers


@pytest.mark.parametrize(("metric", "variable"), [("comet", "NMT_COMET"), ("metricx", "NMT_METRICX")])
def test_sources_are_asked_for_before_anything_runs(
    metric: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "true")
    scorer = scorers.build(scorers.config_class(metric)(), TextOptions())
    with pytest.raises(UsageError, match=f"the metric '{metric}' reads the sources, too: nmt-score --src FILE"):
        scorer(["a"], [["a"]])
    with pytest.raises(UsageError, match=f"validation.metrics={metric} reads the sources"):
        build_scorers(ValidationConfig(metrics=[metric]))

"""COMET and MetricX where no sources are."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config.sections import ValidationConfig
from nmt.errors import NMTError, UsageError
from nmt.scoring import TextOptions, scorers
from nmt.scoring.learned import _metric_class
from nmt.training.setup.metrics import build_scorers


@pytest.mark.parametrize(("metric", "variable"), [("comet", "NMT_COMET"), ("metricx", "NMT_METRICX")])
def test_sources_are_asked_for_before_anything_runs(
    metric: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "true")
    scorer = scorers.build(scorers.config_class(metric)(), TextOptions())
    with pytest.raises(UsageError, match=f"the metric '{metric}' needs the sources: nmt-score --src FILE"):
        scorer(["a"], [["a"]])
    with pytest.raises(
        UsageError, match=f"validation.metrics={metric} needs the sources, which only nmt-score provides"
    ):
        build_scorers(ValidationConfig(metrics=[metric]))


def test_lines_that_get_another_number_of_scores_are_counted_in_words() -> None:
    summary: Any = None
    metric = _metric_class()("COMET", "comet", lambda triples: [0.5], {}, summary)
    with pytest.raises(NMTError, match="COMET returned 1 score for 2 lines"):
        metric.with_sources(["ein", "zwei"])._extract_corpus_statistics(["a", "b"], [["one", "two"]])

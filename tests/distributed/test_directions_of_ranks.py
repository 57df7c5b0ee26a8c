"""Validation of several directions in two processes: the figures of one process, for each direction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.processes import TINY, assert_alike, events, run_one, run_two
from tests.three_languages import PAIRS, ZERO_SHOT, make_corpus


@pytest.mark.timeout(600)
def test_two_processes_score_each_direction_as_one_does(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "text")
    options = [str(corpus), *TINY, "--max-update", "6", "--validate-interval-updates", "6"]
    run_one(*options, "--update-freq", "2", "--save-dir", str(tmp_path / "one"))
    run_two(*options, "--save-dir", str(tmp_path / "two"))
    assert_alike(tmp_path / "two", tmp_path / "one")
    validated = [event for event in events(tmp_path / "two") if event["event"] == "valid"]
    assert validated
    for figure in ("loss", "bleu"):
        figures = {
            name: validated[-1][f"{name}.{figure}"] for name in [*PAIRS, *(f"zero-shot.{pair}" for pair in ZERO_SHOT)]
        }
        assert len(set(figures.values())) > 1, figures
        assert validated[-1][figure] == pytest.approx(sum(figures[name] for name in PAIRS) / len(PAIRS))

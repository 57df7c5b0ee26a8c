"""Table 2: the paper's figures, ours by counting alone, and those of run folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.examples.wmt14_archives import load

costs = load("costs")


def test_the_papers_arithmetic_gives_the_papers_figures() -> None:
    """Time x devices x 9.5 TFLOPS, to the two digits that the table has."""
    for experiment in costs.EXPERIMENTS.values():
        stated = experiment.published.flops
        assert {costs.power(one) for one in stated.values()} == {costs.power(experiment.by_time)}


@pytest.mark.parametrize(("operations", "digits", "text"), [(3.3e18, 2, "3.3e18"), (3.812e8, 3, "3.81e8")])
def test_operations_are_written_as_in_the_paper(operations: float, digits: int, text: str) -> None:
    assert costs.power(operations, digits) == text


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is counted in no time."""
    small = replace(costs.EXPERIMENTS["base"], preset="transformer_tiny")
    monkeypatch.setattr(costs, "EXPERIMENTS", {"base": small})
    monkeypatch.setattr(costs, "PIECES", {"en-de": 370, "en-fr": 320})


def test_a_count_is_that_of_the_formulas(tiny: None) -> None:
    """4 + 4 layers, width 128, feed-forward 256; a product is two operations, and the backward pass has two for each."""
    d, d_ff, n = 128, 256, 30
    encoder = 4 * (4 * d * d + 2 * d * d_ff + 2 * n * d)
    decoder = 4 * (8 * d * d + 2 * d * d_ff + 4 * n * d) + 370 * d
    assert costs.counted(costs.EXPERIMENTS["base"], 370, n) == pytest.approx(6 * (encoder + decoder), rel=0.02)


@pytest.mark.slow
def test_without_a_run_operations_are_counted(tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs.main(["--tflops", "50", "--devices", "2", "--results", str(tmp_path / "results.json")])
    published, ours = capsys.readouterr().out.split("\n\n")
    assert len(published.splitlines()) == 2 + 10 and "| GNMT + RL | 24.6 | 39.92 | 2.3e19 | 1.4e20 |" in published
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    others = [one for one in found if one["setting"] == "a system of others"]
    assert len(others) == 25 and found[: len(others)] == others and all("ours" not in one for one in others)
    assert ("GNMT + RL, ensemble, en-fr", 41.16) in [(one["row"], one["published"]) for one in others]
    found = found[len(others) :]
    assert [one["metric"] for one in found[:2]] == ["BLEU (paper's)", "training FLOPs, counted from the model"]
    count = costs.counted(costs.EXPERIMENTS["base"], 370, 30)
    assert "ours" not in found[0] and found[1]["ours"] == pytest.approx(count * 2.5e9, rel=0.01)
    total = costs.power(count * 25_000 * 100_000, 3)
    hours = f"{count * 2.5e9 / 3.6e17:.2g}"
    row = f"| Transformer (base), en-de | 100,000 | {costs.power(count, 3)} | {total} | 3.28e18 | 3.3e18 | {hours} |"
    assert row in ours.splitlines() and len(ours.splitlines()) == 2 + 2
    assert f"forecast: {hours} hours of training at 50 TFLOPS on each of 2 devices" in found[0]["setting"]


def run_folder(folder: Path, **end: Any) -> Path:
    (folder / "run").mkdir(parents=True)
    events = [{"event": "start", "update": 0, "model": {"parameters": 65_000_000}}]
    events += [{"event": "end", **end}] if end else []
    (folder / "run/log.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in events), encoding="utf-8")
    return folder


FACTS = {"update": 100_000, "seconds": 43_200.0, "flops_counted": 9.51e17, "flops_estimated": 3.283e18}


def test_a_run_is_shown_beside_what_is_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "en-de/base"
    folder.parent.mkdir()
    folder.symlink_to(run_folder(tmp_path / "another disk", **FACTS))
    scores = [{"metric": name, "score": 27.123, "signature": "s"} for name in ("paper_bleu", "bleu")]
    (folder / "score.json").write_text(json.dumps({"scores": scores}), encoding="utf-8")
    for _ in range(2):  # the second time in place of the first
        costs.main([str(folder), "--results", str(tmp_path / "results.json")])
    row = "| Transformer (base), en-de | 27.12 | 27.3 | 27.12 | 100,000 | 9.51e17 | 3.28e18 | 3.3e18 |"
    assert row in capsys.readouterr().out.splitlines()
    found = {one["metric"]: one for one in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))}
    assert {name: (one["ours"], one.get("published")) for name, one in found.items()} == {
        "BLEU (paper's)": (27.12, 27.3),
        "sacreBLEU": (27.12, None),
        "training FLOPs, counted": (9.51e17, 3.3e18),
        "training FLOPs, estimated": (3.28e18, 3.3e18),
    }
    assert all(one["parameters"] == 65_000_000 and one["minutes"] == 720 for one in found.values())


def test_what_a_run_does_not_know_is_left_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "en-fr/big", update=5, seconds=2.0, flops_counted=1e9)
    costs.main([str(folder), "--results", str(tmp_path / "results.json")])
    assert "| Transformer (big), en-fr |  | 41.8 |  | 5 | 1.00e9 |  | 2.3e19 |" in capsys.readouterr().out
    (only,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert only["metric"] == "training FLOPs, counted"


@pytest.mark.parametrize(
    ("name", "end", "status", "said"),
    [("en-de/small", FACTS, 2, "is not a folder of run.sh"), ("en-de/base", {}, 65, "has not ended")],
)
def test_a_folder_that_says_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, end: dict[str, Any], status: int, said: str
) -> None:
    folder = run_folder(tmp_path / name, **end)
    with pytest.raises(SystemExit) as stopped:
        costs.main([str(folder)])
    assert stopped.value.code == status and said in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"scores": [{"metric": "bleu"}]}', '{"scores": [{"metric": 1, "score": "x"}]}']
)
def test_scores_of_something_else_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder = run_folder(tmp_path / "en-de/base", **FACTS)
    (folder / "score.json").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        costs.main([str(folder)])
    said = capsys.readouterr().err
    assert stopped.value.code == 65 and "score.json is not output of nmt-score --format json; remove it" in said


def test_a_rate_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        costs.main(["--tflops", "0"])
    assert stopped.value.code == 2 and "--tflops 0 and --devices 1 must both be above 0" in capsys.readouterr().err


def test_the_results_that_are_kept_have_the_forecast_of_the_readme() -> None:
    """Each hour of the table stands in the setting of the score that was not run."""
    readme = (costs.Path(costs.__file__).parent / "README.md").read_text(encoding="utf-8")
    kept = json.loads((costs.Path(costs.__file__).parent / "results.json").read_text(encoding="utf-8"))
    not_run = {one["row"]: one["setting"] for one in kept if "ours" not in one}
    settings = {row: setting for row, setting in not_run.items() if setting != costs.OTHERS}
    assert len(settings) == 4 and len(not_run) == 17
    for experiment in costs.EXPERIMENTS.values():
        for pair, title in (("en-de", "En-De"), ("en-fr", "En-Fr")):
            size = experiment.name.split("(")[1].rstrip(")")
            begin = f"| {size}, {title} | {experiment.updates:,} | "
            (row,) = [line for line in readme.splitlines() if line.startswith(begin)]
            hours = row.strip("| ").split(" | ")[-1]
            assert f"forecast: {hours} hours of training at 104 TFLOPS" in settings[f"{experiment.name}, {pair}"]

"""Training curves of several runs in one picture."""

from __future__ import annotations

import json
import re

import pytest

from nmt.errors import MissingInputError
from nmt.reporting.curves import plot_curves, smoothed
from tests.html_pages import data_of


def write_log(folder, losses, scores=()):
    folder.mkdir(parents=True)
    events = [{"event": "start", "update": 0, "seconds": 0.0}]
    for number, loss in enumerate(losses, 1):
        events.append({"event": "train", "update": 10 * number, "loss": loss, "tokens": 500, "seconds": 2.0 * number})
    for number, score in enumerate(scores, 1):
        events.append({"event": "valid", "update": 10 * number, "loss": 3.0 / number, "bleu": score})
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return folder


@pytest.fixture
def runs(tmp_path):
    return [write_log(tmp_path / "runs/a", [4.0, 3.0, 2.0], [10.0, 20.0]), write_log(tmp_path / "runs/b", [5.0, 1.0])]


def test_a_page_has_the_events_of_each_run_and_its_first_settings(runs, tmp_path):
    plot_curves(runs, tmp_path / "x.html", "tokens", 0.9)
    data = data_of((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert [(run["name"], len(run["events"])) for run in data["runs"]] == [("a", 6), ("b", 3)]
    assert (data["over"], data["smoothing"], data["live"], data["single"]) == ("tokens", 0.9, False, False)


@pytest.mark.parametrize(
    ("over", "at"), [("updates", "update 20"), ("tokens", "target token 1,000"), ("seconds", "second 4")]
)
def test_points_stand_where_the_run_was(runs, tmp_path, over, at):
    plot_curves(runs, tmp_path / "x.svg", over)
    assert f"a 20 at {at}</title>" in (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_both_runs_are_in_one_picture(runs, tmp_path):
    plot_curves(runs, tmp_path / "x.svg")
    picture = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert re.findall(r"</tspan> (\w+)</text>", picture) == ["a", "b", "a", "a"]


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [write_log(tmp_path / name / "run", [2.0, 1.0]) for name in "ab"]
    plot_curves(runs, tmp_path / "x.html")
    data = data_of((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert [run["name"] for run in data["runs"]] == list(map(str, runs))


def test_smoothing_keeps_a_constant_and_halves_a_jump():
    constant, jump = (
        [value for _, value in smoothed(list(enumerate(values)), 0.5)] for values in ([3.0] * 3, [4.0, 1.0])
    )
    assert constant == pytest.approx([3.0, 3.0, 3.0]) and jump == pytest.approx([4.0, (0.25 * 4 + 0.5 * 1) / 0.75])
    assert smoothed([(1, 4.0), (2, 1.0)], 0.0) == [(1, 4.0), (2, 1.0)]


@pytest.mark.parametrize("over", ["updates", "tokens", "seconds"])
def test_what_another_program_wrote_into_a_log_is_left_out(runs, tmp_path, over):
    plot_curves(runs, tmp_path / "x.svg", over)
    with open(runs[0] / "log.jsonl", "a", encoding="utf-8") as file:
        for more in (
            '"tokens": "many"',
            '"seconds": [1]',
            '"tokens": NaN',
            '"loss": NaN',
            '"loss": 1e999',
            '"loss": true',
        ):
            file.write(f'{{"event": "valid", "update": 20, {more}}}\n{{"event": "train", "update": 40, {more}}}\n')
    plot_curves(runs, tmp_path / "y.svg", over)
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == (tmp_path / "y.svg").read_text(encoding="utf-8")


def test_a_run_whose_end_says_nothing_is_drawn(tmp_path):
    folder = write_log(tmp_path / "ended", [4.0, 3.0])
    with open(folder / "log.jsonl", "a", encoding="utf-8") as file:
        file.write('{"event": "end", "update": 20}\n')
    plot_curves([folder], tmp_path / "x.html")
    (run,) = data_of((tmp_path / "x.html").read_text(encoding="utf-8"))["runs"]
    assert run["events"][-1] == {"event": "end", "update": 20}


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInputError, match="no run folder"):
        plot_curves([tmp_path / "none"], tmp_path / "x.svg")
    with pytest.raises(MissingInputError, match="not a run folder, or training has not begun"):
        plot_curves([tmp_path / "empty"], tmp_path / "x.svg")
    with pytest.raises(MissingInputError, match="no losses yet"):
        plot_curves([write_log(tmp_path / "young", [])], tmp_path / "x.svg")


def test_a_sweep_is_drawn_without_its_jobs_that_failed_at_once(runs, tmp_path):
    jobs = [("runs/a", "finished"), ("runs/b", "finished"), ("runs/none", "failed")]
    records = [{"overrides": [f"optimizer.lr=0.{n}"], "folder": name, "status": s} for n, (name, s) in enumerate(jobs)]
    (tmp_path / "sweep.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    plot_curves([tmp_path], tmp_path / "x.svg")
    names = re.findall(r"</tspan> ([^<]+)</text>", (tmp_path / "x.svg").read_text(encoding="utf-8"))
    assert names[:2] == ["lr=0.0", "lr=0.1"]
    plot_curves([tmp_path], tmp_path / "x.html")
    assert len(data_of((tmp_path / "x.html").read_text(encoding="utf-8"))["runs"]) == 3

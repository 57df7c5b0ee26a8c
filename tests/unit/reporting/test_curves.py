"""Training curves of several runs in one picture."""

from __future__ import annotations

import json
import re

import pytest

from nmt.errors import MissingInputError
from nmt.reporting.curves import plot_curves, smoothed
from tests.html_pages import Page


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


def test_a_page_has_the_curves_and_the_figures_of_each_run(runs, tmp_path):
    plot_curves(runs, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.text("figcaption") == ["Training loss", "Validation loss", "Validation bleu"]
    assert page.text("td")[:5] == ["a", "30", "1,500", "0:00:06", "1.5000"]
    assert "default-src 'none'" in text and "<script" not in text


@pytest.mark.parametrize(
    ("over", "at"), [("updates", "update 20"), ("tokens", "target token 1,000"), ("seconds", "second 4")]
)
def test_points_stand_where_the_run_was(runs, tmp_path, over, at):
    plot_curves(runs, tmp_path / "x.html", over)
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert f"a 20 at {at}</title>" in text and f"Horizontal axis: {at.rpartition(' ')[0]}s." in text


def test_both_runs_are_in_one_picture(runs, tmp_path):
    plot_curves(runs, tmp_path / "x.svg")
    picture = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert re.findall(r"</tspan> (\w+)</text>", picture) == ["a", "b", "a", "a"]


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [write_log(tmp_path / name / "run", [2.0, 1.0]) for name in "ab"]
    plot_curves(runs, tmp_path / "x.html")
    assert str(tmp_path / "a/run") in (tmp_path / "x.html").read_text(encoding="utf-8")


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
    assert Page((tmp_path / "x.html").read_text(encoding="utf-8")).text("td")[:3] == ["ended", "20", "0"]


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInputError, match="no run folder"):
        plot_curves([tmp_path / "none"], tmp_path / "x.svg")
    with pytest.raises(MissingInputError, match="not a run folder, or training has not begun"):
        plot_curves([tmp_path / "empty"], tmp_path / "x.svg")
    with pytest.raises(MissingInputError, match="no losses yet"):
        plot_curves([write_log(tmp_path / "young", [])], tmp_path / "x.svg")

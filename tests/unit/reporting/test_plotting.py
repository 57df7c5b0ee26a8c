"""Pictures that are complete, with the right contents: curves as SVG, attention as PNG."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.reporting import plotting
from nmt.reporting.plotting import AttentionPanel, plot_attention, plot_comparison, plot_learning_curve
from tests.unit.reporting.pictures import picture

PNG = b"\x89PNG\r\n\x1a\n"


def write_log(path: Path, *events: dict[str, Any], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail, encoding="utf-8")
    return path


def train(update: int, loss: float) -> dict[str, Any]:
    return {"event": "train", "update": update, "epoch": 1, "loss": loss, "nll": loss, "ppl": 2.0, "lr": 0.1}


def valid(update: int, loss: float, **metrics: float) -> dict[str, Any]:
    return {"event": "valid", "update": update, "epoch": 1, "loss": loss, "nll": loss, "ppl": 2.0, **metrics}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved, for looking inside."""
    figures: list[Figure] = []
    save = plotting._save

    def remember(figure: Figure, output: Path) -> None:
        figures.append(figure)
        save(figure, output)

    monkeypatch.setattr(plotting, "_save", remember)
    return figures


def panel(source: str, target: str, title: str = "") -> AttentionPanel:
    weights = np.zeros((len(target), len(source)))
    weights[:, 0] = 1.0
    return AttentionPanel(list(source), list(target), weights, title)


def curves(path: Path) -> dict[str, int]:
    """Names of curves, with their numbers of points."""
    groups = [group for group in picture(path.read_text()).iter("g") if group.get("class")]
    names = [text.removeprefix("\u25cf").strip() for text in legends(path)]
    points = [str(polyline.get("points")).split() for group in groups for polyline in group.iter("polyline")]
    return {name: len(one) for name, one in zip(names, points, strict=True)}


def legends(path: Path) -> list[str]:
    texts = ["".join(text.itertext()) for text in picture(path.read_text()).iter("text")]
    return [text for text in texts if text.startswith("\u25cf")]


def values(path: Path) -> list[str]:
    """What the dots of a picture say when pointed at."""
    return [str(title.text) for title in picture(path.read_text()).iter("title")]


def drawn_of(tmp_path: Path, *events: dict[str, Any], tail: str = "") -> dict[str, int]:
    log = write_log(tmp_path / "log.jsonl", *events, tail=tail)
    plot_learning_curve(log, tmp_path / "curve.svg")
    return curves(tmp_path / "curve.svg")


def test_losses_and_metrics_are_drawn_against_updates(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", train(10, 3.0), train(20, 2.0), valid(20, 2.5, bleu=7.0, exact=1.0))
    plot_learning_curve(log, tmp_path / "plots" / "curve.svg", title="date $ task $ <&>")
    drawn = tmp_path / "plots" / "curve.svg"
    assert curves(drawn) == {"training": 2, "validation": 1, "validation bleu": 1, "validation exact": 1}
    assert values(drawn) == [
        "validation 2.5 at update 20",
        "validation bleu 7 at update 20",
        "validation exact 1 at update 20",
    ]
    texts = "".join(picture(drawn.read_text()).itertext())
    assert "date $ task $ <&>" in texts and texts.rstrip().endswith("update")


def test_a_continued_run_overwrites_what_it_repeats(tmp_path: Path) -> None:
    assert drawn_of(tmp_path, train(10, 3.0), valid(20, 9.0), valid(20, 2.0)) == {"training": 1, "validation": 1}
    assert "validation 2 at update 20" in values(tmp_path / "curve.svg")


def test_what_was_not_finite_leaves_a_gap(tmp_path: Path) -> None:
    events = [train(10, 3.0), {**train(20, 0.0), "loss": None}, {**valid(20, 0.0), "loss": None, "bleu": None}]
    assert drawn_of(tmp_path, *events) == {"training": 1}


def test_a_line_cut_off_by_a_kill_is_ignored(tmp_path: Path) -> None:
    assert drawn_of(tmp_path, train(10, 3.0), tail='{"event": "trai') == {"training": 1}


def test_a_file_that_is_no_log_draws_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\xff[1]\n7\n")
    with pytest.raises(DataError, match="no curve to draw"):
        plot_learning_curve(log, tmp_path / "curve.svg")


def test_a_missing_log_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="no training log"):
        plot_learning_curve(tmp_path / "log.jsonl", tmp_path / "curve.svg")


def test_a_log_without_curves_draws_nothing(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", {"event": "checkpoint", "update": 1, "epoch": 1, "path": "x"})
    with pytest.raises(DataError, match="no curve to draw"):
        plot_learning_curve(log, tmp_path / "curve.svg")
    assert not (tmp_path / "curve.svg").exists()


def test_a_picture_of_curves_that_is_not_named_svg_is_refused_with_its_right_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="curves are drawn as SVG: name the file .*curve.svg instead of .*curve.png"):
        plot_learning_curve(write_log(tmp_path / "log.jsonl", train(10, 3.0)), tmp_path / "curve.png")


def test_a_comparison_shows_a_metric_of_each_run_against_epochs(tmp_path: Path) -> None:
    one = write_log(tmp_path / "one", *({**valid(10 * n, 1.0, exact=20.0 * n), "epoch": n} for n in (2, 1, 3)))
    two = write_log(tmp_path / "two", {**valid(5, 1.0, exact=7.0), "epoch": 1})
    drawn = tmp_path / "plot.svg"
    plot_comparison({"first": one, "second": two}, "exact", drawn, title="$ task")
    assert values(drawn) == [f"first {20 * n} at epoch {n}" for n in (1, 2, 3)] + ["second 7 at epoch 1"]
    texts = "".join(picture(drawn.read_text()).itertext())
    assert "validation exact" in texts and texts.rstrip().endswith("epoch")


def test_a_comparison_names_the_run_without_the_metric(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", valid(10, 2.0, bleu=3.0))
    with pytest.raises(DataError, match="no validation event with 'exact': train with --valid-metrics exact"):
        plot_comparison({"one": log}, "exact", tmp_path / "plot.svg")
    assert not (tmp_path / "plot.svg").exists()


def test_long_names_are_shortened_and_long_titles_are_set_in_lines(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", train(5, 1.0), valid(5, 1.0, exact=7.0))
    plot_comparison({"short": log, "x" * 150: log}, "exact", tmp_path / "plot.svg", title="many words " * 30)
    texts = ["".join(text.itertext()) for text in picture((tmp_path / "plot.svg").read_text()).iter("text")]
    assert max(map(len, texts)) <= 70


def test_attention_without_matplotlib_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-toolkit\[plots\]'"):
        plot_attention([panel("a", "b")], tmp_path / "attention.png")


def test_attention_has_the_source_across_and_the_output_down(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_attention([panel("a b", "xy")], tmp_path / "attention.png")
    axes = drawn[0].axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "\u2423", "b"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # the first output piece stands above the second
    assert axes.images[0].get_array().shape == (2, 3)


def test_attended_is_bright(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_attention([panel("ab", "x")], tmp_path / "attention.png")
    image = drawn[0].axes[0].images[0]
    colours = image.cmap(image.norm(np.array([0.0, 1.0])))
    assert colours[1][:3].sum() > colours[0][:3].sum()


def test_every_sentence_gets_a_panel_of_the_same_scale(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = [panel("a" * length, "b" * 10, title="c" * 30) for length in (5, 30, 30, 12)]
    plot_attention(panels, tmp_path / "attention.png")
    figure = drawn[0]
    page = figure.get_size_inches()
    cells = {
        tuple(np.round(axes.get_position().size * page / (len(one.source), len(one.target)), 6))
        for axes, one in zip(figure.axes, panels)
    }
    assert cells == {(plotting._CELL, plotting._CELL)}


SENTENCE = "a title of many words that says what the source is and what the output is, at some length"


def test_a_title_does_not_widen_the_page_and_stays_on_it(tmp_path: Path, drawn: list[Figure]) -> None:
    for title in ("", "word", SENTENCE, "word " * 100, "w" * 500, "W" * 500):
        plot_attention([panel("abcd", "wxyz", title=title)], tmp_path / "attention.png")
    assert {figure.get_size_inches()[0] for figure in drawn} == {drawn[0].get_size_inches()[0]}
    for figure in drawn[1:]:
        figure.canvas.draw()
        page, panel_with_title, scale = figure.bbox, *(axes.get_tightbbox() for axes in figure.axes)
        assert page.x0 <= panel_with_title.x0 and panel_with_title.x1 <= scale.x0 and panel_with_title.y1 <= page.y1


def test_a_title_of_a_sentence_is_readable_to_its_end_above_a_small_map(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_attention([panel("abcd", "wxyz", title=SENTENCE)], tmp_path / "attention.png")
    assert drawn[0].axes[0].get_title(loc="left").split() == SENTENCE.split()


def test_a_title_that_would_be_taller_than_any_map_ends_in_an_ellipsis(tmp_path: Path, drawn: list[Figure]) -> None:
    for title in ("word " * 100, "w" * 500):
        plot_attention([panel("abcd", "wxyz", title=title)], tmp_path / "attention.png")
    assert all(figure.axes[0].get_title(loc="left").endswith("\N{HORIZONTAL ELLIPSIS}") for figure in drawn)
    assert all(figure.get_size_inches()[1] < 4.0 for figure in drawn)


def test_panels_do_not_overlap_and_stay_on_the_page(tmp_path: Path, drawn: list[Figure]) -> None:
    panels = [panel("a" * length, "b" * 10, title="c" * 60) for length in (3, 30, 30, 5, 80, 1)]
    plot_attention(panels, tmp_path / "attention.png")
    figure = drawn[0]
    figure.canvas.draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert all(box is not None for box in boxes)
    page = figure.bbox
    for number, box in enumerate(boxes):
        assert box.x0 >= page.x0 and box.y0 >= page.y0 and box.x1 <= page.x1 and box.y1 <= page.y1
        assert not any(box.overlaps(other) for other in boxes[:number])


def test_dollar_signs_are_text_not_formulas(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_attention([AttentionPanel(["$x^", "$"], ["$", "_$"], np.eye(2), "$\\bad{ $")], tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(PNG)
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ["$x^", "$"]


def test_no_sentences_draw_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sentence"):
        plot_attention([], tmp_path / "attention.png")


def test_a_failed_drawing_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "attention.png"
    picture.write_bytes(b"old")

    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("half-way")

    monkeypatch.setattr("matplotlib.backends.backend_agg.FigureCanvasAgg.print_figure", fail)
    with pytest.raises(RuntimeError, match="half-way"):
        plot_attention([panel("a", "b")], picture)
    assert picture.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["attention.png"]


def test_importing_it_imports_neither_torch_nor_matplotlib() -> None:
    program = "import sys, nmt.plotting; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"

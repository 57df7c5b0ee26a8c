"""Pictures as SVG that are complete, with the right contents."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.plotting import AttentionPanel, plot_attention, plot_comparison, plot_learning_curve
from nmt.reporting import attention_pictures
from tests.unit.reporting.pictures import picture

CELL = attention_pictures._CELL


def write_log(path: Path, *events: dict[str, Any], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail, encoding="utf-8")
    return path


def train(update: int, loss: float) -> dict[str, Any]:
    return {"event": "train", "update": update, "epoch": 1, "loss": loss, "nll": loss, "ppl": 2.0, "lr": 0.1}


def valid(update: int, loss: float, **metrics: float) -> dict[str, Any]:
    return {"event": "valid", "update": update, "epoch": 1, "loss": loss, "nll": loss, "ppl": 2.0, **metrics}


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
    texts = ["".join(text.itertext()).strip() for text in picture(path.read_text()).iter("text")]
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


def test_a_picture_may_be_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra [plots] is not installed")
    plot_attention([AttentionPanel(["ein", "haus"], ["a"], np.array([[0.5, 0.5]]))], tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def test_png_without_its_extra_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    panels = [AttentionPanel(["ein"], ["a"], np.array([[1.0]]))]
    with pytest.raises(UsageError, match=r"PNG needs a package .*; or name the file .*a.svg"):
        plot_attention(panels, tmp_path / "a.png")


def test_a_picture_with_another_suffix_is_refused_with_a_right_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pictures are SVG or PNG: name the file .*curve.svg instead of .*curve.pdf"):
        plot_learning_curve(write_log(tmp_path / "log.jsonl", train(10, 3.0)), tmp_path / "curve.pdf")


def test_a_picture_in_a_folder_that_cannot_be_made_is_refused_with_what_to_do(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", train(1, 2.0))
    with pytest.raises(OutputError, match=r"cannot create .*curve.svg: Not a directory; a part of the path is a file"):
        plot_learning_curve(log, log / "folder" / "curve.svg")


def test_a_comparison_shows_a_metric_of_each_run_against_epochs(tmp_path: Path) -> None:
    one = write_log(tmp_path / "one", *({**valid(10 * n, 1.0, exact=20.0 * n), "epoch": n} for n in (2, 1, 3)))
    two = write_log(tmp_path / "two", {**valid(5, 1.0, exact=7.0), "epoch": 1})
    drawn = tmp_path / "plot.svg"
    plot_comparison({"first": one, "second": two}, "exact", drawn, title="$ task")
    assert values(drawn) == [f"first {20 * n} at epoch {n}" for n in (1, 2, 3)] + ["second 7 at epoch 1"]
    texts = "".join(picture(drawn.read_text()).itertext())
    assert "validation exact" in texts and texts.rstrip().endswith("epoch")


@pytest.mark.parametrize(("lowest", "tick"), [(19.0, "10"), (21.0, "25")], ids=["wide", "narrow"])
def test_a_comparison_begins_at_zero_unless_half_of_it_would_be_empty(tmp_path: Path, lowest: float, tick: str) -> None:
    events = ({**valid(1, 1.0, exact=score), "epoch": epoch} for epoch, score in ((1, lowest), (2, 40.0)))
    plot_comparison({"one": write_log(tmp_path / "log", *events)}, "exact", tmp_path / "plot.svg")
    texts = ["".join(text.itertext()).strip() for text in picture((tmp_path / "plot.svg").read_text()).iter("text")]
    assert tick in texts


def test_eight_curves_have_eight_colours(tmp_path: Path) -> None:
    logs = {f"run {n}": write_log(tmp_path / f"log{n}", valid(5, 1.0, exact=float(n + 1))) for n in range(9)}
    plot_comparison(logs, "exact", tmp_path / "plot.svg")
    names = [span.get("class") for span in picture((tmp_path / "plot.svg").read_text()).iter("tspan")]
    assert len(set(names[:8])) == 8 and names[8] == names[0]


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


def attention(tmp_path: Path, *panels: AttentionPanel) -> ElementTree.Element:
    plot_attention(panels, tmp_path / "attention.svg")
    return picture((tmp_path / "attention.svg").read_text())


def of_kind(drawn: ElementTree.Element, kind: str) -> list[str]:
    return [str(text.text) for text in drawn.iter("text") if text.get("class") == kind]


def test_attention_has_the_source_across_and_the_output_down(tmp_path: Path) -> None:
    drawn = attention(tmp_path, panel("a b", "xy"))
    assert of_kind(drawn, "source") == ["a", "\u2423", "b"] and of_kind(drawn, "target") == ["x", "y"]
    (found,) = [group for group in drawn.iter("g") if group.get("class") == "map"]
    places = [(float(str(cell.get("x"))), float(str(cell.get("y")))) for cell in found.iter("rect")]
    assert places == [(CELL * x, CELL * y) for y in (0, 1) for x in (0, 1, 2)]


def test_attended_is_bright(tmp_path: Path) -> None:
    weights = np.array([[1.0, 0.25, 0.0]])
    drawn = attention(tmp_path, AttentionPanel(["a", "b", "c"], ["x"], weights))
    greys = [
        cell.get("fill") for group in drawn.iter("g") if group.get("class") == "map" for cell in group.iter("rect")
    ]
    assert greys == ["rgb(255,255,255)", "rgb(64,64,64)", "rgb(0,0,0)"]


SENTENCE = "a title of many words that says what the source is and what the output is, at some length"


def test_a_title_does_not_widen_the_page(tmp_path: Path) -> None:
    titles = ("", "word", SENTENCE, "word " * 100, "w" * 500)
    assert len({attention(tmp_path, panel("abcd", "wxyz", title=title)).get("width") for title in titles}) == 1


def test_a_title_of_a_sentence_is_readable_to_its_end_above_a_small_map(tmp_path: Path) -> None:
    drawn = attention(tmp_path, panel("abcd", "wxyz", title=SENTENCE))
    assert " ".join(of_kind(drawn, "title")).split() == SENTENCE.split()


@pytest.mark.parametrize("title", ["word " * 100, "w" * 500])
def test_a_title_that_would_be_taller_than_any_map_ends_in_an_ellipsis(tmp_path: Path, title: str) -> None:
    lines = of_kind(attention(tmp_path, panel("abcd", "wxyz", title=title)), "title")
    assert len(lines) == 16 and lines[-1].endswith("\N{HORIZONTAL ELLIPSIS}")


def test_maps_do_not_overlap_and_stay_on_the_page(tmp_path: Path) -> None:
    panels = [panel("a" * length, "b" * 10, title="c" * 60) for length in (3, 30, 30, 5, 80, 1)]
    drawn = attention(tmp_path, *panels)
    page = float(str(drawn.get("width"))), float(str(drawn.get("height")))
    boxes = []
    maps = [attention_pictures._Map(one) for one in panels]
    attention_pictures._place_in_rows(maps)
    for map in maps:
        boxes.append((map.left, map.top, map.left + map.width, map.top + map.height))
    for number, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and top >= 0 and right <= page[0] and bottom <= page[1]
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_odd_pieces_are_text(tmp_path: Path) -> None:
    drawn = attention(tmp_path, AttentionPanel(["$x^", "<"], ["&", "_$"], np.eye(2), "$\\bad{ <b>"))
    assert of_kind(drawn, "source") == ["$x^", "<"] and of_kind(drawn, "target") == ["&", "_$"]
    assert " ".join(of_kind(drawn, "title")) == "$\\bad{ <b>"


def test_no_sentences_draw_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no attention to draw"):
        plot_attention([], tmp_path / "attention.svg")


def test_a_failed_drawing_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = tmp_path / "attention.svg"
    drawn.write_bytes(b"old")
    monkeypatch.setattr("nmt.reporting.attention_pictures.render", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        plot_attention([panel("a", "b")], drawn)
    assert drawn.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["attention.svg"]


def test_importing_it_imports_neither_torch_nor_matplotlib() -> None:
    program = "import sys, nmt.plotting; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_picture_is_shown_by_notebooks_and_written_if_there_is_a_file(tmp_path: Path) -> None:
    shown = plot_attention([panel("ab", "cd")])
    plot_attention([panel("ab", "cd")], tmp_path / "maps.svg")
    assert shown._repr_svg_() == (tmp_path / "maps.svg").read_text()
    assert list(picture(shown.svg).iter("rect"))

"""Attention drawn as lines between two columns of words, and what fonts lack."""

from __future__ import annotations

import logging
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from nmt.errors import DataError, UsageError
from nmt.reporting.attention_pictures import LinesPanel, color_of, plot_attention_lines
from nmt.reporting.picture import Picture, missing_letters, width_of

ROWS, COLUMNS = ("ein", "<b>", "</s>"), ("a", "\u0645\u0631\u062d\u0628\u0627")


def panel(heads=(1,), num_heads=4, rows=ROWS, columns=COLUMNS):
    weights = np.linspace(0, 1, len(heads) * len(rows) * len(columns), dtype=np.float32)
    return LinesPanel(rows, columns, weights.reshape(len(heads), len(rows), len(columns)), heads, num_heads, "line 1")


def drawn(tmp_path, *panels):
    plot_attention_lines(panels, tmp_path / "x.svg")
    return (tmp_path / "x.svg").read_text(encoding="utf-8")


def test_each_line_is_as_strong_as_its_weight(tmp_path):
    strengths = [float(one) for one in re.findall(r'stroke-opacity="([\d.]+)"', drawn(tmp_path, panel()))]
    assert strengths == [0.2, 0.4, 0.6, 0.8, 1.0]  # what is not looked at has no line


def test_each_word_stands_in_its_column(tmp_path):
    picture = drawn(tmp_path, panel())
    assert re.findall(r'class="row".*?>(.*?)</text>', picture) == ["ein", "&lt;b&gt;", "&lt;/s&gt;"]
    assert re.findall(r'class="column".*?>(.*?)</text>', picture) == ["a", f"\u200f{COLUMNS[1]}\u200f"]


def test_marks_of_words_from_right_to_left_stand_where_these_begin(tmp_path):
    words = ("\u2581\u05e9\u05dc", "\u0645@@", "1", "\u2581a", "\u2581\u732b")
    found = re.findall(r'class="row".*?>(.*?)</text>', drawn(tmp_path, panel(rows=words)))
    assert found == [*(f"\u200f{word}\u200f" for word in words[:2]), *words[2:]]


@pytest.mark.parametrize("word", ["a\x01b", "\x1b[0m", "\ufffe", "\x00"])
def test_what_a_picture_cannot_hold_has_a_mark_in_its_place(tmp_path, word):
    root = ElementTree.fromstring(drawn(tmp_path, panel(rows=(word, "b", "c"))))
    assert any("\ufffd" in "".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text"))


def test_a_head_has_one_colour_whichever_others_are_drawn(tmp_path):
    both, alone = drawn(tmp_path, panel((1, 3))), drawn(tmp_path, panel((3,)))
    assert color_of(3, 4) in both and color_of(3, 4) in alone and color_of(1, 4) not in alone
    assert len({color_of(head, 16) for head in range(1, 17)}) == 16


def test_sentences_beside_each_other_begin_at_the_same_height(tmp_path):
    picture = drawn(tmp_path, panel(), panel(rows=tuple("abcdefghi"), columns=COLUMNS))
    assert len(set(re.findall(r'<g transform="translate\([\d.]+ ([\d.]+)\)">\n<text class="title"', picture))) == 1


def test_png_is_written_too(tmp_path):
    pytest.importorskip("resvg_py")
    plot_attention_lines([panel()], tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_to_draw_and_another_ending_are_refused(tmp_path):
    with pytest.raises(DataError, match="no attention to draw"):
        plot_attention_lines([], tmp_path / "x.svg")
    with pytest.raises(UsageError, match="SVG or PNG"):
        plot_attention_lines([panel()], tmp_path / "x.pdf")


def test_letters_that_no_font_has_are_named_in_a_warning(caplog, tmp_path):
    pytest.importorskip("resvg_py")
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>\U0001f9ff</title><text>{}</text></svg>'
    with caplog.at_level(logging.WARNING):
        Picture(svg.format("ab \u0378x")).written(tmp_path / "x.png")  # a code point of Unicode that has no letter
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        Picture(svg.format("a<tspan>\U0001f9ff</tspan>\U00013000")).written(
            tmp_path / "x.png"
        )  # an amulet, a hieroglyph
    assert "no installed font has" in caplog.text or not missing_letters("\U0001f9ff\U00013000")


def test_a_font_that_has_a_letter_is_found_among_those_installed(monkeypatch):
    pytest.importorskip("matplotlib")
    assert missing_letters("a\u00e4\u0645 \u05e9") == set()
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    assert missing_letters("a\u732b") == {"\u732b"}


def test_square_letters_are_wider_and_marks_take_no_room():
    assert width_of("\u732b") > width_of("a") == width_of("a\u0301")

"""Bars as SVG: their heights are in proportion, and they stand beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.pages.bars import Bars
from nmt.pages.charts import BOTTOM, LEFT, RIGHT, TOP
from nmt.pages.names import short_names


def test_heights_are_in_proportion_from_zero() -> None:
    chart = Bars("F1", ["few", "many"], [("a", [10.0, 40.0]), ("b", [20.0, 0.0])])
    heights = [bar.height for number in (0, 1) for bar in chart.bars(number)]
    assert heights == pytest.approx([heights[0], 4 * heights[0], 2 * heights[0], 0.0])
    assert all(bar.top + bar.height == pytest.approx(BOTTOM) and bar.top > TOP for bar in chart.bars(0))


def test_bars_of_a_group_touch_and_stay_within_it() -> None:
    chart = Bars("F1", ["few", "many"], [(name, [1.0, 2.0]) for name in "abc"])
    lefts = [chart.bars(number)[0].left for number in range(3)]
    width = chart.bars(0)[0].width
    assert [lefts[1] - lefts[0], lefts[2] - lefts[1]] == pytest.approx([width, width])
    assert lefts[0] > LEFT and lefts[2] + width < LEFT + chart.group_width
    assert chart.bars(2)[1].left + width < RIGHT


def test_where_there_is_no_value_there_is_no_bar() -> None:
    chart = Bars("F1", ["few", "many"], [("a", [None, 3.0])])
    assert [(bar.label, bar.value) for bar in chart.bars(0)] == [("many", 3.0)]
    assert Bars("F1", [], [("a", [])]).upwards.ticks[0] == 0


def test_a_value_below_zero_has_a_flat_bar() -> None:
    assert Bars("x", ["few"], [("a", [-2.0])]).bars(0)[0].height == 0


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    one, other, same = tmp_path / "x/a.txt", tmp_path / "x/b.txt", tmp_path / "y/a.txt"
    assert short_names([one, other]) == ["a.txt", "b.txt"]
    assert short_names([one, same]) == [str(one), str(same)]


def test_a_link_and_the_folder_that_one_is_in_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("x")
    monkeypatch.chdir(tmp_path / "runs")
    assert short_names([Path("latest"), Path(".")]) == ["latest", "runs"]

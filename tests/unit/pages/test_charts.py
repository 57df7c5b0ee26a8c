"""Curves as SVG: what is drawn is what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.pages.charts import HEIGHT, WIDTH, Chart, Series, nice_ticks, render, thinned
from tests.unit.reporting.pictures import picture

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


def svg(chart: Chart) -> ElementTree.Element:
    """The picture, which must be well-formed XML."""
    return picture(render("picture.svg", charts=[(chart, 0)], title=[], width=WIDTH, height=HEIGHT))


def line(chart: Chart) -> list[tuple[float, float]]:
    (polyline,) = svg(chart).iter("polyline")
    return [(float(x), float(y)) for x, y in (point.split(",") for point in polyline.attrib["points"].split())]


def test_values_stand_in_proportion_and_within_the_picture() -> None:
    drawn = line(Chart("loss", [Series("training", [(10, 1.0), (20, 4.0), (30, 2.0)])]))
    (x0, y0), (x1, y1), (x2, y2) = drawn
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(3.0, rel=0.01), "higher values stand higher"
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in drawn)


def test_a_wide_range_is_drawn_by_its_logarithm() -> None:
    heights = [y for _, y in line(Chart("ppl", [Series("training", [(1, 1e5), (2, 1e3), (3, 1e1)])]))]
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)


def test_scores_keep_a_linear_scale_however_low_they_begin() -> None:
    drawn = line(Chart("exact", [Series("run", [(1, 0.2), (2, 50.2), (3, 100.2)])], from_zero=True, linear=True))
    heights = [y for _, y in drawn]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


@pytest.mark.parametrize("points", [[(5, 2.0)], [(5, 0.0)], [(1, 3.0), (2, 3.0)], [(1, -1.0), (2, 0.0)]])
def test_one_point_equal_points_and_negative_ones_can_be_drawn(points: list[tuple[float, float]]) -> None:
    assert len(line(Chart("loss", [Series("training", points)], from_zero=True))) == len(points)


def test_a_curve_without_points_is_left_out() -> None:
    assert Chart("scores", [Series("bleu", [])]).drawn == []
    drawn = svg(Chart("scores", [Series("bleu", []), Series("chrf", [(1, 2.0)])]))
    assert len(list(drawn.iter("polyline"))) == 1


def test_names_are_escaped() -> None:
    drawn = svg(Chart("<b>", [Series('a"<i>', [(1, 2.0)], dots=True)]))
    texts = "".join(drawn.itertext())
    assert "<b>" in texts and 'a"<i> 2 at update 1' in texts


@given(st.lists(NUMBERS, min_size=1, max_size=3000), st.integers(10, 500))
def test_thinning_keeps_ends_and_extremes(values: list[float], most: int) -> None:
    points = list(enumerate(values))
    kept = thinned(points, most)
    assert len(kept) <= most
    assert kept[0] == points[0] and kept[-1] == points[-1] and kept == sorted(kept)
    kept_values = [value for _, value in kept]
    assert min(kept_values) == min(values) and max(kept_values) == max(values)


@given(NUMBERS, st.floats(1e-6, 1e9))
def test_ticks_are_few_evenly_spaced_and_within_the_range(low: float, extent: float) -> None:
    if low + extent == low:
        return
    ticks = nice_ticks(low, low + extent)
    assert len(ticks) <= 7
    room = 1e-6 * (abs(low) + extent)
    assert all(low - room <= tick <= low + extent + room for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(0, 10, [0, 2, 4, 6, 8, 10]), (1.2, 2.1, [1.2, 1.4, 1.6, 1.8, 2.0])]
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_ticks_of_updates_are_whole_numbers() -> None:
    assert Chart("loss", [Series("training", [(1, 2.0), (2, 3.0)])]).across.ticks == [0, 1, 2]


@pytest.mark.parametrize("high", [1e3, 1e8, 1e38, 1e304])
def test_a_logarithmic_axis_has_few_labels_however_wide_it_is(high: float) -> None:
    drawn = svg(Chart("ppl", [Series("training", [(1, 1.0), (2, high)])]))
    assert 2 <= sum(each.attrib.get("class") == "rule" for each in drawn.iter("path")) <= 8

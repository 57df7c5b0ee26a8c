"""Numbers as people read them."""

from __future__ import annotations

import pytest

from nmt.pages.numbers import duration, figure, megabytes, scientific, short


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figure(3.14159), "3.1416"),
        (figure(31.4159), "31.42"),
        (figure(31415.9), "3.142e+04"),
        (duration(59.9), "0:00:59"),
        (duration(360_001), "100:00:01"),
        (megabytes(999.4), "999 MB"),
        (megabytes(23_456.0), "23.5 GB"),
        (scientific(9.4e15), "9.400\u00a0\u00d7\u00a010^15"),
    ],
)
def test_figures_are_short(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7.1e-4, "0.00071"),
        (3.14159, "3.14"),
        (1500, "1,500"),
        (45_000, "45k"),
        (2.1e6, "2.1M"),
        (3e15, "3e+15"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text

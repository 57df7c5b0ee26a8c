"""Words of messages."""

from __future__ import annotations

import pytest

from nmt.errors import quantity


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (12_345, "12,345 lines"), (1.0, "1 line"), (0.5, "0.5 lines")],
    ids=str,
)
def test_a_count_of_one_has_a_noun_without_s(count: int, words: str) -> None:
    assert quantity(count, "line") == words


def test_another_plural_can_be_given() -> None:
    assert [quantity(count, "batch", "batches") for count in (1, 2)] == ["1 batch", "2 batches"]

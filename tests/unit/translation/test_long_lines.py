"""Where a line that is too long is cut, and how its translation is joined."""

from __future__ import annotations

import numpy as np
import pytest

from nmt.data.vocabulary import Floats
from nmt.translation.lines import TranslatedText, join_parts, split_line


def parts_of(text: str, limit: int) -> list[str]:
    pieces = text.split()
    parts = split_line(np.arange(len(pieces), dtype=np.int32), pieces, limit)
    return [" ".join(pieces[number] for number in part) for part in parts]


@pytest.mark.parametrize(
    ("text", "limit", "parts"),
    [
        ("▁a ▁b .", 3, ["▁a ▁b ."]),
        ("▁a . ▁b ▁c ▁d ▁e", 4, ["▁a .", "▁b ▁c ▁d ▁e"]),  # after a sentence in the second half
        ("▁a b . ▁c d ▁e f", 4, ["▁a b .", "▁c d ▁e f"]),
        ("▁a . ▁b ▁c d ▁e f ▁g h", 5, ["▁a . ▁b ▁c d", "▁e f ▁g h"]),  # a sentence in the first half: before a word
        ("▁a b c d e f g", 3, ["▁a b c", "d e f", "g"]),  # one long word: anywhere
        ("▁a ▁b ▁c", 1, ["▁a", "▁b", "▁c"]),
    ],
)
def test_a_line_is_cut_where_that_hurts_least(text: str, limit: int, parts: list[str]) -> None:
    assert parts_of(text, limit) == parts


def text(words: str, score: float, attention: Floats | None = None, finished: bool = True) -> TranslatedText:
    pieces = words.split()
    return TranslatedText(words, pieces, score, [score] * (len(pieces) + 1), attention, finished)


def test_the_best_translations_of_the_parts_make_the_best_of_the_line() -> None:
    found = join_parts([[text("a b", -1.0), text("a", -2.0)], [text("c", -3.0, finished=False)]])
    assert [one.text for one in found] == ["a b c", "a c"]
    assert found[0].pieces == ["a", "b", "c"] and found[0].token_scores == [-1.0, -1.0, -3.0, -3.0]
    assert found[0].score == -4.0 and not found[0].finished


def test_each_part_looks_at_its_own_part_of_the_source() -> None:
    one, two = (np.random.default_rng(1).random(shape, dtype=np.float32) for shape in ((3, 4), (2, 3)))
    joined = join_parts([[text("a b", 0.0, one)], [text("c", 0.0, two)]])[0].attention
    assert joined is not None and joined.shape == (2 + 2, 3 + 3)
    np.testing.assert_array_equal(joined[:2, :3], one[:-1, :-1])
    np.testing.assert_array_equal(joined[2:, 3:], two)
    assert not joined[:2, 3:].any() and not joined[2:, :3].any()


def test_no_part_makes_an_empty_line_and_one_is_left_as_it_is() -> None:
    assert join_parts([]) == [TranslatedText("", [], 0.0, [], None, True)]
    only = [text("a", -1.0)]
    assert join_parts([only]) == only


def test_samples_of_a_line_are_no_more_alike_in_rank_than_chance_makes_them() -> None:
    """Each sample of each part once, best first, and the probable ones of a part not always with the other's."""
    parts = [[text(f"{name}{rank}", -float(rank)) for rank in range(30)] for name in "ab"]
    found = join_parts(parts, sampled=True)
    pairs = [one.text.split() for one in found]
    assert [sorted(half) for half in zip(*pairs)] == [sorted(one.text for one in part) for part in parts]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    ranks = np.array([[int(half[1:]) for half in pair] for pair in pairs])
    assert abs(np.corrcoef(ranks.T)[0, 1]) < 0.5
    assert [one.text for one in join_parts(parts, sampled=True)] == [one.text for one in found]

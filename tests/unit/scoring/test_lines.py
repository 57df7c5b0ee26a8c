"""What nmt-score says about suspicious text."""

from __future__ import annotations

import pytest

from nmt.scoring import lines_with_piece_marks, looks_tokenized


@pytest.mark.parametrize("line", ["ein gro@@ ßer Hund", "abge@@", "\u2581ein \u2581Hund"])
def test_piece_marks_are_seen(line: str) -> None:
    assert lines_with_piece_marks(["plain text", line]) == 1


@pytest.mark.parametrize("line", ["plain", "a@b.org", "user@@host", "", "@ @"])
def test_plain_text_has_no_piece_marks(line: str) -> None:
    assert lines_with_piece_marks([line]) == 0


def test_tokenized_text_is_recognised() -> None:
    assert looks_tokenized(["a man , in blue , plays .", "two dogs ."])


@pytest.mark.parametrize(
    "lines", [[], ["A man, in blue, plays.", "Two dogs."], ["costs .50", "3 . 5"] + ["text."] * 8], ids=len
)
def test_ordinary_text_is_not_called_tokenized(lines: list[str]) -> None:
    assert not looks_tokenized(lines)

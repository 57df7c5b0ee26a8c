"""Splitting lines into words, and the words in which two texts differ.

Words are the tokens of sacreBLEU's tokenizer. If it does not split scripts without spaces, each letter of such a script is
a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from nmt.config.choices import WORD_START
from nmt.scoring import TextOptions, bleu_metric
from nmt.scoring.unspaced import spaced

Words = tuple[str, ...]

_BY_SPACES = ("13a", "intl", "none")  # tokenizers that do not split a Chinese sentence


@dataclass(frozen=True)
class Cutter:
    """Splits lines into words."""

    prepare: Callable[[str], str]  # puts spaces between words
    lowercase: bool
    by_letters: bool  # split scripts without spaces into letters

    @classmethod
    def of(cls, text: TextOptions) -> Cutter:
        return cls(bleu_metric(text)._preprocess_segment, text.lowercase, text.tokenize in _BY_SPACES)

    def words(self, line: str) -> Words:
        return self._split(self.prepare(line))

    def pieces(self, lines: Sequence[str]) -> list[tuple[Words, Words]]:
        """Return the words of each line, and the line split after each of them; the pieces concatenate to the line.

        If the tokenizer changed the text of any line, all lines are split at spaces instead.
        """
        words = [self.words(line) for line in lines]
        cut = [_cut(line, line.lower() if self.lowercase else line, own) for line, own in zip(lines, words)]
        if None in cut:
            words = [self._split(line) for line in lines]
            cut = [_cut(line, line, own) for line, own in zip(lines, words)]
        return [(own, pieces or ()) for own, pieces in zip(words, cut)]

    def _split(self, text: str) -> Words:
        return tuple((spaced(text) if self.by_letters else text).split())


def _cut(line: str, text: str, words: Sequence[str]) -> Words | None:
    """Split a line after each word; None if it contains more than the words and white space.

    ``text`` is the line in the case of the words.
    """
    ends, end = list[int](), 0
    for word in words:
        visible = word if WORD_START in text else word.replace(WORD_START, "")
        begin = text.find(visible, end)
        if begin < 0 or text[end:begin].strip():
            return None
        end = begin + len(visible)
        ends.append(end)
    if text[end:].strip() or len(text) != len(line):
        return None
    return tuple(line[begin:end] for begin, end in zip([0, *ends[:-1]], [*ends[:-1], len(line)]) if words)


def unmatched_words(first: Sequence[str], second: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices of each text's words that do not match the other text, as difflib aligns them."""
    shared = SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks()
    in_first = {index for block in shared for index in range(block.a, block.a + block.size)}
    in_second = {index for block in shared for index in range(block.b, block.b + block.size)}
    return (
        tuple(index for index in range(len(first)) if index not in in_first),
        tuple(index for index in range(len(second)) if index not in in_second),
    )

"""What counts as a word, and which words two texts have in common.

Words are those that BLEU compares: of sacreBLEU's tokenizer. Where it knows no writing without spaces, each letter of such a
writing is a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from nmt.scoring import TextOptions, bleu_metric
from nmt.scoring.unspaced import spaced

Words = tuple[str, ...]

_BY_SPACES = ("13a", "intl", "none")  # tokenizers that leave a Chinese sentence in one piece
_BEGINS = "\u2581"  # sentencepiece's mark of a word that begins, which is not in the text


@dataclass(frozen=True)
class Cutter:
    """Cuts lines into words."""

    prepare: Callable[[str], str]  # words between spaces, of which a letter of an unspaced writing may be a part
    lowercase: bool
    by_letters: bool

    @classmethod
    def of(cls, text: TextOptions) -> Cutter:
        return cls(bleu_metric(text)._preprocess_segment, text.lowercase, text.tokenize in _BY_SPACES)

    def words(self, line: str) -> Words:
        return self._split(self.prepare(line))

    def pieces(self, lines: Sequence[str]) -> list[tuple[Words, Words]]:
        """Of each line its words, and the line cut at them: each with what stands before it, so that joined they are the
        line. Where the tokenizer has changed the text of a line, words are what stands between spaces, in all lines."""
        words = [self.words(line) for line in lines]
        found = [_cut(line, self._cased(line), several) for line, several in zip(lines, words)]
        if None in found:
            words = [self._split(line) for line in lines]
            found = [_cut(line, line, several) for line, several in zip(lines, words)]
        return [(several, pieces or ()) for several, pieces in zip(words, found)]

    def _cased(self, line: str) -> str:
        return line.lower() if self.lowercase else line

    def _split(self, text: str) -> Words:
        return tuple((spaced(text) if self.by_letters else text).split())


def _cut(line: str, text: str, words: Sequence[str]) -> Words | None:
    """The line, cut behind each word; None if there is more in it than words and white space. ``text``: the line in the case
    of the words."""
    ends, end = list[int](), 0
    for word in words:
        visible = word if _BEGINS in text else word.replace(_BEGINS, "")
        begin = text.find(visible, end)
        if begin < 0 or text[end:begin].strip():
            return None
        end = begin + len(visible)
        ends.append(end)
    if text[end:].strip() or len(text) != len(line):
        return None
    return tuple(line[begin:end] for begin, end in zip([0, *ends[:-1]], [*ends[:-1], len(line)]) if words)


def apart(one: Sequence[str], other: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of the words of each text that the other one does not have there. difflib finds what they share: the
    longest stretch first, then likewise on its left and on its right."""
    shared = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    in_one = {number for block in shared for number in range(block.a, block.a + block.size)}
    in_other = {number for block in shared for number in range(block.b, block.b + block.size)}
    return _others(len(one), in_one), _others(len(other), in_other)


def _others(count: int, numbers: set[int]) -> tuple[int, ...]:
    return tuple(number for number in range(count) if number not in numbers)

"""The words of a line, and those to which its tokens belong.

Spaces and tabs separate words, as in files of word alignments; other white space is part of a word. A token has a span of
characters, which may cross words if a sentencepiece model was not trained to split at spaces.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher

Span = tuple[int, int]  # characters of a line: begin and end

_WORD = re.compile(r"[^ \t]+")
_STRETCH = 256  # characters matched at a time: 6,400 take half a minute, in cubic time


def words(line: str) -> list[str]:
    """Return the words of a line."""
    return _WORD.findall(line)


def words_of_spans(line: str, spans: Sequence[Span]) -> list[range]:
    """Return the range of words, numbered from 0, to which each span belongs.

    A span of white space belongs to the next word, since tokens of sentencepiece begin with their space. So does an empty
    span outside of words. At the end of a line such spans belong to no word.
    """
    words = [match.span() for match in _WORD.finditer(line)]
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    ranges = []
    for begin, end in spans:
        first = bisect_right(ends, begin)
        ranges.append(range(first, min(len(words), max(first + 1, bisect_left(begins, end)))))
    return ranges


def spans_of_texts(line: str, texts: Sequence[str]) -> list[Span]:
    """Return the span in a line of each of some consecutive texts.

    Spaces between texts may be absent. Characters that differ from the line, such as plain quotation marks, are aligned by
    the longest common parts.
    """
    places = _walked(line, "".join(texts)) or _matched(line, "".join(texts))
    spans, begin = list[Span](), 0
    for text in texts:
        own = places[begin : begin + len(text)]
        begin += len(text)
        after = spans[-1][1] if spans else 0
        spans.append((own[0][0], own[-1][1]) if own else (after, after))
    return spans


def _walked(line: str, text: str) -> list[Span] | None:
    """Return the span of each character if only spaces were removed, otherwise None."""
    places, place = list[Span](), 0
    for character in text:
        while place < len(line) and line[place] != character and line[place].isspace():
            place += 1
        if place == len(line) or line[place] != character:
            return None
        places.append((place, place + 1))
        place += 1
    return places


def _matched(line: str, text: str) -> list[Span]:
    """Return the span of each character or of its replacement.

    Long lines are matched in stretches, each up to a common part near its middle.
    """
    places, start = list[Span](), 0
    while len(places) < len(text):
        own, other = line[start : start + _STRETCH], text[len(places) : len(places) + _STRETCH]
        enough = _STRETCH // 2 if max(len(line) - start, len(text) - len(places)) > _STRETCH else _STRETCH
        matched = 0
        for kind, begin, end, first, last in SequenceMatcher(None, own, other, autojunk=False).get_opcodes():
            if kind == "equal":
                places += [(start + place, start + place + 1) for place in range(begin, end)]
            else:
                places += [(start + begin, start + end)] * (last - first)
            matched = end
            if kind == "equal" and last >= enough:
                break
        start += matched
    return places

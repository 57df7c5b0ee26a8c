"""Which words of a line its pieces stand for.

Words are what stands between spaces and tabs, as in files of word alignments; every other white space is part of a word. A
piece stands for a span of the line's characters. It may go across words, as those of a sentencepiece model may that was
not trained to split at spaces.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher

Span = tuple[int, int]  # of characters of a line: the first, and the first that no longer belongs to it

_WORD = re.compile(r"[^ \t]+")
_STRETCH = 256  # characters that are matched at once: 6,400 take half a minute, and twice as many eight times as long


def words(line: str) -> list[str]:
    """The words of a line."""
    return _WORD.findall(line)


def words_of_spans(line: str, spans: Sequence[Span]) -> list[range]:
    """The words, by their numbers from 0, that each span belongs to.

    Nothing but space belongs to the word after it, as in the pieces of sentencepiece, which begin with their space; so does
    an empty span, unless it stands within a word. At the end of a line such spans belong to no word.
    """
    found = [match.span() for match in _WORD.finditer(line)]
    begins, ends = [begin for begin, _ in found], [end for _, end in found]
    ranges = []
    for begin, end in spans:
        first = bisect_right(ends, begin)
        ranges.append(range(first, min(len(found), max(first + 1, bisect_left(begins, end)))))
    return ranges


def spans_of_texts(line: str, texts: Sequence[str]) -> list[Span]:
    """Where in a line each of some texts stands, which follow each other.

    Between them spaces may be left out. Where the texts write characters that the line has not, such as plain quotation
    marks for others, the longest parts that both have in common say what belongs together.
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
    """Of each character its place, if all of them stand in the line, with nothing but space between them."""
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
    """Of each character its place, or what stands in its place. Long lines are matched stretch by stretch, each up to
    something in common near its middle."""
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

"""Read trees in the Penn Treebank's brackets, as the words of a sentence and a flat line of symbols.

    ( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks)) (. .)))

has the words ``The dog barks .`` and the symbols ``(S (NP DT NN )NP (VP VBZ )VP . )S``. ``(NP`` opens a node, ``)NP``
closes it, and any other symbol is the tag of the next word. Functions and indices (``-SBJ``, ``=2``) are removed from
labels. Traces (``-NONE-``) and nodes that only contain traces are dropped. An outer bracket without a label, or named
TOP, ROOT or S1, is dropped if it contains a single node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nmt.data.text.lines import Reading
from nmt.errors import DataError

OUTER = frozenset(("", "TOP", "ROOT", "S1"))
TRACE = "-NONE-"

# A tag with its word, the beginning or end of a node, or an unexpected word. White space is ASCII only, as in EVALB.
_TOKEN = re.compile(
    r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)|\(\s*(?P<label>[^\s()]*)|(?P<end>\))|(?P<other>[^\s()]+)",
    re.ASCII,
)
_FUNCTION = re.compile(r"(?<=.)[-=].*")  # in a label; "-LRB-" has none


@dataclass(frozen=True)
class Tree:
    """A sentence's words, and its symbols with one tag per word and labeled closers."""

    symbols: tuple[str, ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``(S (NP (DT The) (NN dog)) ...)`` on one line, in the format of EVALB."""
        words = iter(self.words)
        parts = []
        for symbol in self.symbols:
            if opens(symbol):
                parts.append(f" {symbol}")
            else:
                parts.append(")" if closes(symbol) else f" ({symbol} {next(words)})")
        return "".join(parts).lstrip()


def opens(symbol: str) -> bool:
    return symbol.startswith("(")


def closes(symbol: str) -> bool:
    return symbol.startswith(")")


def is_tag(symbol: str) -> bool:
    return not opens(symbol) and not closes(symbol)


def words_of(line: str) -> list[str]:
    """Return the words of a line, separated by ASCII white space only."""
    return re.findall(r"\S+", line, re.ASCII)


def read_trees(path: Path) -> Iterator[Tree]:
    """Yield the trees of a file, which may be compressed. Trees that only contain traces are skipped."""
    text = "\n".join(line or "" for line in Reading().lines(path))
    try:
        yield from parse(text)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def parse(text: str) -> Iterator[Tree]:
    """Yield the trees of a text. A tree can span several lines."""
    tree = _Growing()
    for token in _TOKEN.finditer(text):
        try:
            tree.add(token)
        except ValueError as error:
            raise DataError(f"line {_line(text, token)}: {error}") from None
        if not tree.opened:
            if tree.words:
                yield tree.finished()
            tree = _Growing()
    if tree.opened:
        raise DataError(f"line {_line(text, tree.first)}: the tree that begins here is not closed")


def _line(text: str, token: re.Match[str] | None) -> int:
    return 1 + text.count("\n", 0, token.start() if token else 0)


class _Growing:
    """A partial tree during reading."""

    def __init__(self) -> None:
        self.symbols: list[str] = []
        self.words: list[str] = []
        self.traces = 0
        self.opened: list[
            tuple[int, int, int]
        ] = []  # per open node: position of its opener, words and traces before it
        self.first: re.Match[str] | None = None  # its first token
        self.outermost: list[int] = []  # positions of the root's children

    def add(self, token: re.Match[str]) -> None:
        if self.first is None:
            self.first = token
        place = len(self.symbols)
        if token["other"] is not None:
            raise ValueError(f"'{token['other']}' neither begins nor ends a node: a word needs a tag, (NN word)")
        if token["end"] is not None:
            self._close()
            return
        if len(self.opened) == 1:
            self.outermost.append(place)
        if token["label"] is not None:
            self.opened.append((place, len(self.words), self.traces))
            self.symbols.append("(" + _FUNCTION.sub("", token["label"]))
        elif not self.opened:
            raise ValueError(f"the word '{token['word']}' is outside any tree")
        elif token["tag"] == TRACE:
            self.traces += 1
            self._forget(place)
        else:
            self.symbols.append(token["tag"])
            self.words.append(token["word"])

    def _close(self) -> None:
        if not self.opened:
            raise ValueError("a bracket closes nothing")
        place, words, traces = self.opened.pop()
        if len(self.words) == words:
            if self.traces == traces:
                raise ValueError(f"the node '{self.symbols[place]})' is empty: a word needs a tag, (NN word)")
            del self.symbols[place:]
            self._forget(place)
        else:
            self.symbols.append(")" + self.symbols[place][1:])

    def _forget(self, place: int) -> None:
        """Forget a child of the root that was dropped."""
        if self.outermost and self.outermost[-1] == place:
            self.outermost.pop()

    def finished(self) -> Tree:
        """Return the tree without an outer bracket around one node. Around several nodes, its label becomes TOP."""
        symbols = self.symbols
        if symbols[0][1:] in OUTER:
            if len(self.outermost) == 1 and opens(symbols[1]):
                symbols = symbols[1:-1]
            else:
                symbols = ["(TOP", *symbols[1:-1], ")TOP"]
        return Tree(tuple(symbols), tuple(self.words))

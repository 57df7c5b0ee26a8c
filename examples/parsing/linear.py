"""Convert trees to lines for a model, and back. Any line of a model becomes a tree of exactly the given words.

In a line such as ``(S (NP DT NN )NP (VP VBZ )VP . )S``, closers can be without labels, and all tags can be XX (Vinyals
et al. 2015, "Grammar as a Foreign Language"). A line does not contain the words; they come from the source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from trees import Tree, closes, is_tag, opens

from nmt.errors import DataError

XX = "XX"
ROOT = "S"  # root of lines without a root: nine of ten trees have it

# Words with a fixed tag by the treebank's guidelines. EVALB removes words with these tags from both trees. If the
# model chose these tags, one wrong tag of a comma would make the whole sentence an error.
PUNCTUATION = {
    ",": ",",
    ".": ".",
    "?": ".",
    "!": ".",
    ":": ":",
    ";": ":",
    "-": ":",
    "--": ":",
    "...": ":",
    "``": "``",
    "`": "``",
    "''": "''",
}

REPAIRS = {
    "strange": "unknown symbols were dropped",
    "unopened": "closers without an opener were dropped",
    "unclosed": "nodes were closed before the one around them, or at the end",
    "surplus": "leaves beyond the last word were dropped",
    "missing": "leaves were added under the root",
    "empty": "nodes without a leaf were dropped",
    "rootless": "trees got a root",
}
_SYMBOL = re.compile(r"\([^()\s]+|\)[^()\s]*|[^()\s]+")


def linearise(tree: Tree, *, closers: bool = True, tags: bool = False) -> str:
    """Return the symbols of the tree as a line. ``closers``: with labels; ``tags``: keep tags, otherwise all are XX."""

    def written(symbol: str) -> str:
        if is_tag(symbol):
            return symbol if tags else XX
        return symbol if closers or opens(symbol) else ")"

    return " ".join(map(written, tree.symbols))


def restore(line: str, words: Sequence[str]) -> tuple[Tree, Counter[str]]:
    """Return the tree of a line over these words, and the number of repairs by kind (``REPAIRS``).

    The tree keeps the tags of the line. Punctuation always gets the tags of ``PUNCTUATION``, and no other word gets
    them.
    """
    if not words:
        raise DataError("a sentence without words has no tree")
    bracket = next((word for word in words if "(" in word or ")" in word), None)
    if bracket is not None:
        raise DataError(
            f"the word '{bracket}' has a bracket, which marks a node of a tree; split the sentence into words with words.py"
        )
    repairs: Counter[str] = Counter()
    symbols = _with_root(_balanced(line.split(), len(words), repairs), len(words), repairs)
    proper = iter(tags_of(words))
    tagged = [_tag(next(proper), symbol) if is_tag(symbol) else symbol for symbol in symbols]
    return Tree(tuple(tagged), tuple(words)), +repairs


def tags_of(words: Sequence[str]) -> Iterable[str | None]:
    """Yield the tag of each word that is punctuation, None for other words.

    A ' after a ` or after punctuation is a quotation mark, otherwise POS.
    """
    quoted, before = False, ""
    for word in words:
        if word == "'":
            yield "''" if quoted or before in PUNCTUATION else "POS"
            quoted = False
        else:
            yield PUNCTUATION.get(word)
        quoted = quoted or word == "`"
        before = word


def _tag(proper: str | None, written: str) -> str:
    if proper is not None:
        return proper
    return XX if written in PUNCTUATION.values() else written


def _balanced(symbols: Iterable[str], num_words: int, repairs: Counter[str]) -> list[str]:
    """Return symbols in which every node has a leaf and its closer, with at most ``num_words`` leaves."""
    made: list[str] = []
    opened: list[tuple[int, int]] = []  # per open node: position of its opener, and leaves before it
    leaves = 0

    def close() -> None:
        place, before = opened.pop()
        if leaves == before:
            del made[place:]
            repairs["empty"] += 1
        else:
            made.append(")" + made[place][1:])

    for symbol in symbols:
        if _SYMBOL.fullmatch(symbol) is None:
            repairs["strange"] += 1
        elif opens(symbol):
            opened.append((len(made), leaves))
            made.append(symbol)
        elif closes(symbol):
            above = _above(symbol, [made[place] for place, _ in opened])
            if above is None:
                repairs["unopened"] += 1
                continue
            repairs["unclosed"] += above
            for _ in range(above + 1):
                close()
        elif leaves == num_words:
            repairs["surplus"] += 1
        else:
            made.append(symbol)
            leaves += 1
    repairs["unclosed"] += len(opened)
    while opened:
        close()
    return made


def _above(closer: str, opened: Sequence[str]) -> int | None:
    """Return the number of open nodes inside the innermost one with the closer's label; None if no node has it."""
    if closer == ")":
        return 0 if opened else None
    wanted = "(" + closer[1:]
    return next((above for above, opener in enumerate(reversed(opened)) if opener == wanted), None)


def _with_root(symbols: list[str], num_words: int, repairs: Counter[str]) -> list[str]:
    """Return the symbols under one root, with missing leaves as its last children."""
    if not _has_root(symbols):
        symbols = [f"({ROOT}", *symbols, f"){ROOT}"]
        repairs["rootless"] += 1
    missing = num_words - sum(map(is_tag, symbols))
    repairs["missing"] += missing
    return [*symbols[:-1], *[XX] * missing, symbols[-1]]


def _has_root(symbols: Sequence[str]) -> bool:
    """Return whether the first node ends last."""
    depth = 0
    for place, symbol in enumerate(symbols):
        depth += opens(symbol) - closes(symbol)
        if depth == 0:
            return place == len(symbols) - 1 and closes(symbol)
    return False

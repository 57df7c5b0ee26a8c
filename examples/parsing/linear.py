"""Trees as the lines that a model writes, and back: whatever the model wrote becomes a tree of exactly the words given.

Of ``(S (NP DT NN )NP (VP VBZ )VP . )S`` the closers may lose their labels, and tags may all become XX (Vinyals et al. 2015,
"Grammar as a Foreign Language"). The words are not in a line; they come back from the source.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from trees import Tree, closes, is_tag, opens

from nmt.errors import DataError

XX = "XX"
ROOT = "S"  # of what has no root: the root of nine trees in ten

# Words whose tag the treebank's guidelines leave no choice of. EVALB leaves words out by these tags, in both trees: were
# they the model's, one wrong tag of a comma would make the whole sentence an error.
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
    "strange": "symbols that are none were left out",
    "unopened": "closers of nothing were left out",
    "unclosed": "nodes were closed before the one around them, or at the end",
    "surplus": "leaves beyond the last word were left out",
    "missing": "leaves were added under the root",
    "empty": "nodes without a leaf were left out",
    "rootless": "trees got a root",
}
_SYMBOL = re.compile(r"\([^()\s]+|\)[^()\s]*|[^()\s]+")


def linearise(tree: Tree, *, closers: bool = True, tags: bool = False) -> str:
    """A line of the tree's symbols; ``closers``: with their labels, ``tags``: as they are, else all are XX."""

    def written(symbol: str) -> str:
        if is_tag(symbol):
            return symbol if tags else XX
        return symbol if closers or opens(symbol) else ")"

    return " ".join(map(written, tree.symbols))


def restore(line: str, words: Sequence[str]) -> tuple[Tree, Counter[str]]:
    """The tree of these words that a line means, and how often it was repaired, by kind (``REPAIRS``).

    Tags that the line has are kept; punctuation has the tags of ``PUNCTUATION``, and no other word has one of those.
    """
    if not words:
        raise DataError("a sentence without words has no tree")
    bracket = next((word for word in words if "(" in word or ")" in word), None)
    if bracket is not None:
        raise DataError(
            f"the word '{bracket}' has a bracket, which is a node's in a tree; words.py cuts sentences as treebanks do"
        )
    repairs: Counter[str] = Counter()
    symbols = _with_root(_balanced(line.split(), len(words), repairs), len(words), repairs)
    proper = iter(tags_of(words))
    tagged = [_tag(next(proper), symbol) if is_tag(symbol) else symbol for symbol in symbols]
    return Tree(tuple(tagged), tuple(words)), +repairs


def tags_of(words: Sequence[str]) -> Iterable[str | None]:
    """The tag of each word that is punctuation. A ' after a ` or after punctuation is a quotation mark, or else POS."""
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
    """Every node closed with its own label, none empty, and as many leaves as there are words if the line has them."""
    made: list[str] = []
    opened: list[tuple[int, int]] = []  # of each open node: its opener's place, and leaves before it
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
    """How many open nodes stand within the one that is closed: the innermost of its label. None: there is no such node."""
    if closer == ")":
        return 0 if opened else None
    wanted = "(" + closer[1:]
    return next((above for above, opener in enumerate(reversed(opened)) if opener == wanted), None)


def _with_root(symbols: list[str], num_words: int, repairs: Counter[str]) -> list[str]:
    """Under one root, with the leaves that were missing as its last children."""
    if not _has_root(symbols):
        symbols = [f"({ROOT}", *symbols, f"){ROOT}"]
        repairs["rootless"] += 1
    missing = num_words - sum(map(is_tag, symbols))
    repairs["missing"] += missing
    return [*symbols[:-1], *[XX] * missing, symbols[-1]]


def _has_root(symbols: Sequence[str]) -> bool:
    """Whether the node that begins first ends last."""
    depth = 0
    for place, symbol in enumerate(symbols):
        depth += opens(symbol) - closes(symbol)
        if depth == 0:
            return place == len(symbols) - 1 and closes(symbol)
    return False

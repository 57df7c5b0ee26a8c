"""Labeled-bracket F1 of parses, by the rules of EVALB (Sekine and Collins) with its parameters COLLINS.prm.

A hypothesis and its reference are trees such as ``(S (NP (DT the) (NN dog)) (VP (VBZ barks)))``, one per line.
EVALB's later QUOTE_LABEL, which repairs quotation marks tagged as possessives, is missing: such a sentence is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any

from nmt.errors import DataError
from nmt.scoring import SacreScorer, Scorer, TextOptions, scorers
from nmt.scoring.counted import counted, only, per_cent

DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
DELETED_FOR_LENGTH = frozenset(("-NONE-",))
EQUIVALENT = {"PRT": "ADVP"}
CUTOFF = 40  # words

# A word with its tag, the begin or end of a node, or other text, which is an error. White space is ASCII only, as in EVALB:
# French words contain no-break spaces.
_TOKEN = re.compile(
    r"\((?P<tag>[^\s()]*)\s+(?P<word>[^\s()]*)\)|\((?P<label>[^\s()]*)|(?P<end>\))|(?P<other>[^\s()]+)", re.ASCII
)
_TAIL = re.compile(r"[-=].*")  # function and index of a label


@dataclass(frozen=True)
class Brackets:
    """The parts of a tree that EVALB compares."""

    words: tuple[str, ...]  # without deleted ones
    tags: tuple[str, ...]
    spans: Counter[tuple[str, int, int]]  # label, first word, and first word after it
    length: int  # in words, punctuation included


@scorers.register("brackets", make_dataclass("BracketsConfig", ()))
def brackets(config: Any, text: TextOptions) -> Scorer:
    """F1 of labeled brackets over all valid sentences. ``tokenize`` and ``lowercase`` have no effect."""
    signature = {"case": "mixed", "rules": "evalb", "prm": "collins"}
    metric = counted("bracket F1", _statistics, signature, summary=_summary)
    return SacreScorer(metric, higher_is_better=True, read_reference=read_tree)


def read_tree(line: str) -> Brackets:
    """Return the words and brackets of a line after EVALB's deletions. A line without a tree has none."""
    words: list[tuple[str, str]] = []
    spans: Counter[tuple[str, int, int]] = Counter()
    opened: list[tuple[str, int, int]] = []  # label, words before it, and character
    length = 0
    for token in _TOKEN.finditer(line):
        tag, label = token["tag"], token["label"]
        if token["other"] is not None:
            raise DataError(f"'{token['other']}' has no tag; write it as a node with a tag, such as (NN word)")
        if tag is not None:
            length += tag not in DELETED_FOR_LENGTH
            if tag not in DELETED:
                words.append((token["word"], EQUIVALENT.get(tag, tag)))
        elif label is not None:
            opened.append((_TAIL.sub("", label), len(words), token.start() + 1))
        elif not opened:
            raise DataError(f"the bracket at character {token.start() + 1} has no opening bracket")
        else:
            label, start, _ = opened.pop()
            if start < len(words) and label not in DELETED:  # a node without words does not count
                spans[EQUIVALENT.get(label, label), start, len(words)] += 1
    if opened:
        raise DataError(f"the bracket at character {opened[-1][2]} is not closed")
    return Brackets(tuple(word for word, _ in words), tuple(tag for _, tag in words), spans, length)


_FIGURES = ("sentences", "errors", "skipped", "complete", "gold", "found", "matched", "words", "tags")


def _statistics(hypothesis: str, references: Sequence[str]) -> list[float]:
    """Return the figures of a sentence, then the same figures, or zeros if the sentence has more than 40 words."""
    gold = read_tree(only(references, "brackets"))
    figures = [float(figure) for figure in _compared(hypothesis, gold)]
    return figures + (figures if gold.length <= CUTOFF else [0.0] * len(figures))


def _compared(hypothesis: str, gold: Brackets) -> tuple[int, ...]:
    try:
        parse = read_tree(hypothesis)
    except DataError:
        return 1, 1, *[0] * (len(_FIGURES) - 2)
    if not parse.words:
        return 1, 0, 1, *[0] * (len(_FIGURES) - 3)
    if parse.words != gold.words:
        return 1, 1, *[0] * (len(_FIGURES) - 2)
    matched, of_gold, of_parse = (spans.total() for spans in (gold.spans & parse.spans, gold.spans, parse.spans))
    complete = matched == of_gold == of_parse
    tags = sum(tag == gold_tag for tag, gold_tag in zip(parse.tags, gold.tags))
    return 1, 0, 0, complete, of_gold, of_parse, matched, len(gold.words), tags


def _summary(sums: Sequence[float]) -> tuple[float, str]:
    count = len(_FIGURES)
    value, detail = _summarized(dict(zip(_FIGURES, sums[:count])))
    short, detail_of_short = _summarized(dict(zip(_FIGURES, sums[count:])))
    return value, f"({detail}; up to {CUTOFF} words: F1 = {short:.2f} {detail_of_short})"


def _summarized(sums: dict[str, float]) -> tuple[float, str]:
    valid = sums["sentences"] - sums["errors"] - sums["skipped"]
    f1 = per_cent(2 * sums["matched"], sums["gold"] + sums["found"])
    figures = {
        "precision": per_cent(sums["matched"], sums["found"]),
        "recall": per_cent(sums["matched"], sums["gold"]),
        "complete": per_cent(sums["complete"], valid),
        "tagging": per_cent(sums["tags"], sums["words"]),
    }
    detail = " ".join(f"{name} = {figure:.2f}" for name, figure in figures.items())
    return (
        f1,
        f"{detail} sentences = {sums['sentences']:.0f} error = {sums['errors']:.0f} skipped = {sums['skipped']:.0f}",
    )

"""Exact match: the share of lines that equal a reference, for tasks with one right answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt import __version__
from nmt.scoring import Score, TextOptions, scorers
from nmt.scoring.lines import check_lines


@dataclass
class ExactConfig:
    """No options of its own: the text options of all scorers say enough."""


@scorers.register("exact", ExactConfig)
class Exact:
    """Per cent of lines equal to any of their references, character by character.

    ``lowercase`` compares lower-cased lines; ``tokenize`` does not apply.
    """

    higher_is_better = True

    def __init__(self, config: ExactConfig, text: TextOptions) -> None:
        self._lowercase = text.lowercase

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        check_lines(hypotheses, references)
        form = str.lower if self._lowercase else str
        correct = sum(form(line) in map(form, answers) for line, answers in zip(hypotheses, zip(*references)))
        case = "lc" if self._lowercase else "mixed"
        return Score(
            name="exact match",
            value=100.0 * correct / len(hypotheses),
            higher_is_better=True,
            signature=f"nrefs:{len(references)}|case:{case}|unit:line|version:nmt-{__version__}",
            detail=f"({correct} of {len(hypotheses)} lines)",
        )

"""What a comparison of systems says, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.comparing.counting import FrequencyBand, NGram
from nmt.pages.frames import framed
from nmt.scoring.signs import Signs, plain_signs
from nmt.scoring.systems import Figure, plain_figures

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class LengthBand:
    """Lines that are about as long."""

    label: str
    lines: int
    scores: Mapping[str, Mapping[str, float]]  # by system, and by metric


@dataclass(frozen=True)
class Translation:
    """A line of a system."""

    text: str
    scores: Mapping[str, float]  # by metric
    pieces: tuple[str, ...]  # the text, cut behind each word
    wrong: Numbers  # of pieces, from 0: those that the reference does not have there; of several references the nearest
    differing: Mapping[str, Numbers]  # those that another system does not have there


@dataclass(frozen=True)
class Sentence:
    """A line of the text."""

    number: int  # from 1
    source: str | None
    references: tuple[str, ...]
    translations: Mapping[str, Translation]  # by system


@dataclass(frozen=True)
class Pair:
    """Two systems. What is better is decided by the first metric."""

    first: str
    second: str
    better: int  # lines that the second one has better,
    worse: int  # worse,
    equal: int  # and equally good
    gains: Numbers  # numbers of lines, the one that the second system gains most in first
    losses: Numbers  # the one that it loses most in first
    right: tuple[NGram, ...]  # n-grams that are right more often in one of them, the most decisive first
    wrong: tuple[NGram, ...]  # n-grams that are wrong more often in one of them


@dataclass(frozen=True)
class Comparison:
    """Of several systems, line for line."""

    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    lines: int
    num_references: int
    tokenize: str
    lowercase: bool
    figures: Mapping[str, Mapping[str, Figure]]  # by system, and by metric
    signs: Mapping[str, Signs]  # by system
    lengths_of: str  # "source", or "reference" where there is no source
    lengths: tuple[LengthBand, ...]
    counted_in: str  # "training text" or "references": where the words of the bands were counted
    frequencies: tuple[FrequencyBand, ...]
    pairs: tuple[Pair, ...]
    sentences: tuple[Sentence, ...]  # those that a pair names, in the order of the text

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        tree = asdict(self)
        tree["figures"] = {name: plain_figures(found) for name, found in self.figures.items()}
        tree["signs"] = {name: plain_signs(found) for name, found in self.signs.items()}
        for band, plain in zip(self.frequencies, tree["frequencies"]):
            for name, found in band.systems.items():
                plain["systems"][name] |= {"precision": found.precision, "recall": found.recall, "f1": found.f1}
        return tree

    def page(self) -> str:
        """As one HTML page that asks nobody for anything."""
        from nmt.comparing.page import comparison_page

        return comparison_page(self)

    def _repr_html_(self) -> str:
        return framed(self.page(), "Comparison of systems")

    def sentence(self, number: int) -> Sentence:
        """By its number in the text, from 1."""
        return next(one for one in self.sentences if one.number == number)


def pairs_of(systems: Sequence[str]) -> list[tuple[str, str]]:
    """Each two of them, in their order."""
    return [(first, second) for place, first in enumerate(systems) for second in systems[place + 1 :]]

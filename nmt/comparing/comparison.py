"""The results of a comparison of systems: as dataclasses, as a plain tree for JSON, and as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.comparing.counting import FrequencyBand, NGram, WordCounts
from nmt.pages.bars import Bars
from nmt.pages.charts import render
from nmt.pages.frames import framed
from nmt.scoring.signs import LABELS, Signs, plain_signs
from nmt.scoring.systems import LIKELY, Figure, plain_figures

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class LengthBand:
    """Scores of the lines of similar length."""

    label: str
    lines: int
    scores: Mapping[str, Mapping[str, float]]  # by system and metric


@dataclass(frozen=True)
class SystemTranslation:
    """One system's translation of a line."""

    text: str
    scores: Mapping[str, float]  # by metric
    pieces: tuple[str, ...]  # the text, split after each word
    wrong: Numbers  # indices of pieces that differ from the nearest reference
    differing: Mapping[str, Numbers]  # indices of pieces that differ from another system's translation, by system


@dataclass(frozen=True)
class Sentence:
    """One line of the text with its translations."""

    number: int  # from 1
    source: str | None
    references: tuple[str, ...]
    translations: Mapping[str, SystemTranslation]  # by system


@dataclass(frozen=True)
class Pair:
    """A comparison of two systems by the first metric."""

    first: str
    second: str
    better: int  # lines for which the second system scores higher
    worse: int  # lines for which it scores lower
    equal: int
    gains: Numbers  # line numbers, largest gain of the second system first
    losses: Numbers  # line numbers, largest loss of the second system first
    right: tuple[NGram, ...]  # n-grams that one system gets right more often, most decisive first
    wrong: tuple[NGram, ...]  # n-grams that one system gets wrong more often, most decisive first


@dataclass(frozen=True)
class Comparison:
    """A line-by-line comparison of several systems."""

    systems: tuple[str, ...]
    metrics: tuple[str, ...]
    lines: int
    num_references: int
    tokenize: str
    lowercase: bool
    figures: Mapping[str, Mapping[str, Figure]]  # by system and metric
    signs: Mapping[str, Signs]  # by system
    lengths_of: str  # "source", or "reference" without a source
    lengths: tuple[LengthBand, ...]
    counted_in: str  # where word frequencies were counted: "training text" or "references"
    frequencies: tuple[FrequencyBand, ...]
    pairs: tuple[Pair, ...]
    sentences: tuple[Sentence, ...]  # the sentences that a pair lists, in text order

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.systems)}: {self._lines_in_words()}, {', '.join(self.metrics)}>"

    def plain(self) -> dict[str, Any]:
        """Return the plain tree that is written as JSON."""
        tree = asdict(self)
        tree["figures"] = {name: plain_figures(figures) for name, figures in self.figures.items()}
        tree["signs"] = {name: plain_signs(signs) for name, signs in self.signs.items()}
        for band, plain in zip(self.frequencies, tree["frequencies"]):
            for name, counts in band.systems.items():
                plain["systems"][name] = {
                    "wanted": counts.expected,
                    "produced": counts.produced,
                    "right": counts.right,
                    "precision": counts.precision,
                    "recall": counts.recall,
                    "f1": counts.f1,
                }
        return tree

    def page(self) -> str:
        """Return a self-contained HTML page; its script shows n-grams and sentences."""
        figures = self.figures[self.systems[0]]
        names = {metric: figure.score.name for metric, figure in figures.items()}
        lengths = [band.label.replace(" words and more", "+").replace(" words", "") for band in self.lengths]
        return render(
            "compare.html",
            found=self,
            about=self._about(),
            names=names,
            scores=[[name, *map(_cell, self.figures[name].values())] for name in self.systems],
            signatures=[f"{figure.score.name}|{figure.score.signature}" for figure in figures.values()],
            tested=any(figure.p_value is not None for row in self.figures.values() for figure in row.values()),
            likely=LIKELY,
            heads=[LABELS[sign] for sign in self.signs[self.systems[0]].counts()],
            trouble=[_trouble(name, self.signs[name]) for name in self.systems],
            by_length=[
                Bars(
                    f"{names[metric]} by length",
                    lengths,
                    [(name, [band.scores[name][metric] for band in self.lengths]) for name in self.systems],
                )
                for metric in self.metrics
            ],
            by_frequency=self._by_frequency(),
            per_cent=_per_cent,
            data=self._script_data(list(names.values())),
        )

    def _repr_html_(self) -> str:
        return framed(self.page(), "Comparison of systems")

    def sentence(self, number: int) -> Sentence:
        """Return a sentence by its line number, from 1."""
        return next(sentence for sentence in self.sentences if sentence.number == number)

    def _about(self) -> str:
        references = "one reference" if self.num_references == 1 else f"{self.num_references} references"
        case = ", lowercased" if self.lowercase else ""
        about = f"{len(self.systems)} systems, {self._lines_in_words()}, {references}"
        return f"{about}; words tokenized by {self.tokenize}{case}"

    def _lines_in_words(self) -> str:
        return "one line" if self.lines == 1 else f"{self.lines:,} lines"

    def _by_frequency(self) -> Bars:
        """Return the chart of F1 by frequency, without words that no reference has: their F1 is undefined."""
        bands = [band for band in self.frequencies if any(counts.expected for counts in band.systems.values())]

        def values(name: str) -> list[float | None]:
            return [None if (f1 := band.systems[name].f1) is None else 100 * f1 for band in bands]

        labels = [band.label.replace(" and more", "+") for band in bands]
        return Bars("F1 of words by frequency", labels, [(name, values(name)) for name in self.systems])

    def _script_data(self, metrics: Sequence[str]) -> dict[str, Any]:
        """Return the data that the page's script reads; systems are referred to by number."""
        number = {name: index for index, name in enumerate(self.systems)}
        higher = [figure.score.higher_is_better for figure in self.figures[self.systems[0]].values()]
        pairs = [
            {
                **vars(pair),
                "first": number[pair.first],
                "second": number[pair.second],
                "right": list(map(_ngram, pair.right)),
                "wrong": list(map(_ngram, pair.wrong)),
            }
            for pair in self.pairs
        ]
        sentences = {
            str(sentence.number): {
                "source": sentence.source,
                "references": sentence.references,
                "translations": [_translation(sentence.translations[name], number) for name in number],
            }
            for sentence in self.sentences
        }
        return {"systems": self.systems, "metrics": metrics, "higher": higher, "pairs": pairs, "sentences": sentences}


def _cell(figure: Figure) -> str:
    interval = "" if figure.interval is None else f" ± {figure.interval:.2f}"
    chance = "" if figure.p_value is None else f" (p = {figure.p_value:.4f}){'*' * (figure.p_value < LIKELY)}"
    return f"{figure.score.value:.2f}{interval}{chance}"


def _trouble(name: str, signs: Signs) -> list[str]:
    ratio = "-" if signs.length_ratio is None else f"{signs.length_ratio:.3f}"
    return [name, ratio, *(f"{count:,} ({100 * count / signs.lines:.1f} %)" for count in signs.counts().values())]


def _per_cent(counts: WordCounts) -> str:
    """Return precision, recall and F1 in percent."""
    shares = (counts.precision, counts.recall, counts.f1)
    return " / ".join("-" if share is None else f"{100 * share:.1f}" for share in shares)


def _ngram(ngram: NGram) -> list[Any]:
    return [len(ngram.words), " ".join(ngram.words), ngram.first, ngram.second]


def _translation(translation: SystemTranslation, number: dict[str, int]) -> dict[str, Any]:
    return {
        "pieces": translation.pieces,
        "scores": [round(value, 2) for value in translation.scores.values()],
        "wrong": translation.wrong,
        "differing": {str(number[name]): numbers for name, numbers in translation.differing.items()},
    }

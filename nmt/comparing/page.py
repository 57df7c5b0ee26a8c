"""A comparison as one HTML page: figures and charts are written into it, n-grams and sentences are drawn by its script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nmt.comparing.counting import Found, NGram
from nmt.pages.bars import Bars
from nmt.pages.charts import render
from nmt.scoring.signs import TOLD
from nmt.scoring.systems import LIKELY, Figure

if TYPE_CHECKING:  # which makes pages of itself
    from nmt.comparing.comparison import Comparison, Sentence, Translation


def comparison_page(found: Comparison) -> str:
    """The whole document."""
    figures = found.figures[found.systems[0]]
    names = {metric: figure.score.name for metric, figure in figures.items()}
    trouble = found.signs[found.systems[0]].counts()
    lengths = [band.label.replace(" words and more", "+").replace(" words", "") for band in found.lengths]
    return render(
        "compare.html",
        found=found,
        about=_about(found),
        names=names,
        scores=[[name, *map(_cell, found.figures[name].values())] for name in found.systems],
        signatures=[f"{figure.score.name}|{figure.score.signature}" for figure in figures.values()],
        tested=any(figure.p_value is not None for one in found.figures.values() for figure in one.values()),
        likely=LIKELY,
        heads=[TOLD[sign] for sign in trouble],
        trouble=[_trouble(found, name) for name in found.systems],
        by_length=[
            Bars(
                f"{names[metric]} by length",
                lengths,
                [(name, [band.scores[name][metric] for band in found.lengths]) for name in found.systems],
            )
            for metric in found.metrics
        ],
        by_frequency=_by_frequency(found),
        per_cent=_per_cent,
        data=_data(found, list(names.values())),
    )


def _about(found: Comparison) -> str:
    references = "one reference" if found.num_references == 1 else f"{found.num_references} references"
    case = ", in lower case" if found.lowercase else ""
    lines = "one line" if found.lines == 1 else f"{found.lines:,} lines"
    return f"{len(found.systems)} systems, {lines}, {references}; words as cut by {found.tokenize}{case}"


def _cell(figure: Figure) -> str:
    interval = "" if figure.interval is None else f" ± {figure.interval:.2f}"
    chance = "" if figure.p_value is None else f" (p = {figure.p_value:.4f}){'*' * (figure.p_value < LIKELY)}"
    return f"{figure.score.value:.2f}{interval}{chance}"


def _trouble(found: Comparison, name: str) -> list[str]:
    one = found.signs[name]
    ratio = "-" if one.length_ratio is None else f"{one.length_ratio:.3f}"
    return [name, ratio, *(f"{count:,} ({100 * count / one.lines:.1f} %)" for count in one.counts().values())]


def _by_frequency(found: Comparison) -> Bars:
    """Words that no reference has are in the table alone: nobody can get them right."""
    bands = [band for band in found.frequencies if any(one.wanted for one in band.systems.values())]

    def values(name: str) -> list[float | None]:
        return [None if (f1 := band.systems[name].f1) is None else 100 * f1 for band in bands]

    labels = [band.label.replace(" and more", "+") for band in bands]
    return Bars("F1 of words by frequency", labels, [(name, values(name)) for name in found.systems])


def _per_cent(one: Found) -> str:
    """Precision, recall and F1."""
    shares = (one.precision, one.recall, one.f1)
    return " / ".join("-" if share is None else f"{100 * share:.1f}" for share in shares)


def _data(found: Comparison, metrics: Sequence[str]) -> dict[str, Any]:
    """What the script reads."""
    number = {name: place for place, name in enumerate(found.systems)}
    higher = [figure.score.higher_is_better for figure in found.figures[found.systems[0]].values()]
    pairs = [
        {
            "first": number[pair.first],
            "second": number[pair.second],
            "better": pair.better,
            "worse": pair.worse,
            "equal": pair.equal,
            "gains": pair.gains,
            "losses": pair.losses,
            "right": list(map(_ngram, pair.right)),
            "wrong": list(map(_ngram, pair.wrong)),
        }
        for pair in found.pairs
    ]
    sentences = {str(one.number): _sentence(one, number) for one in found.sentences}
    return {"systems": found.systems, "metrics": metrics, "higher": higher, "pairs": pairs, "sentences": sentences}


def _ngram(one: NGram) -> list[Any]:
    return [len(one.words), " ".join(one.words), one.first, one.second]


def _sentence(one: Sentence, number: dict[str, int]) -> dict[str, Any]:
    translations = [_translation(one.translations[name], number) for name in number]
    return {"source": one.source, "references": one.references, "translations": translations}


def _translation(one: Translation, number: dict[str, int]) -> dict[str, Any]:
    return {
        "pieces": one.pieces,
        "scores": [round(value, 2) for value in one.scores.values()],
        "wrong": one.wrong,
        "differing": {str(number[name]): numbers for name, numbers in one.differing.items()},
    }

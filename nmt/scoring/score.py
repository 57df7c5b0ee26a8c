"""``nmt.score``: the scores that nmt-score prints, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from nmt.config.commands import ScoreConfig
from nmt.config.composing.composition import from_keywords
from nmt.errors import DataError, UsageError, quantity
from nmt.plugins import load_plugins
from nmt.scoring import TextOptions
from nmt.scoring.learned import with_sources
from nmt.scoring.systems import (
    Certainty,
    Figure,
    check_readable,
    chosen_scorers,
    figures,
    list_of_lines,
    lists_of_lines,
    named_references,
)

OPTIONS = ("metrics", "confidence", "paired", "resamples", "tokenize", "language", "lowercase", "user_dir")

Lines = Sequence[str]


@overload
def score(
    hypotheses: Lines, references: Sequence[Lines] | Lines, sources: Lines | None = ..., **options: Any
) -> dict[str, Figure]: ...


@overload
def score(
    hypotheses: Mapping[str, Lines], references: Sequence[Lines] | Lines, sources: Lines | None = ..., **options: Any
) -> dict[str, dict[str, Figure]]: ...


def score(
    hypotheses: Lines | Mapping[str, Lines],
    references: Sequence[Lines] | Lines,
    sources: Lines | None = None,
    **options: Any,
) -> dict[str, Figure] | dict[str, dict[str, Figure]]:
    """Return the scores of a system by metric, or those of several named systems by system and metric.

    ``references``: one list of lines or several, each as long as the hypotheses; comet and metricx need ``sources``.
    ``options`` are those of nmt-score: ``metrics``, ``confidence``, ``paired``, ``resamples``, ``tokenize``, ``language``,
    ``lowercase``, ``user_dir``.
    """
    by_name = hypotheses if isinstance(hypotheses, Mapping) else {"hypotheses": hypotheses}
    if not by_name:
        raise UsageError("there is no system to score")
    systems = {name: list_of_lines(lines, "score") for name, lines in by_name.items()}
    reference_lists = lists_of_lines(references, "score")
    config = from_keywords(ScoreConfig, options, "score", OPTIONS, sys=list(systems))
    load_plugins(config.user_dir)
    for name, lines in {**systems, **({} if sources is None else {"sources": sources})}.items():
        for reference in reference_lists:
            if len(lines) != len(reference):
                raise DataError(
                    f"{name} has {quantity(len(lines), 'line')}, but the references have {len(reference)}; the "
                    "numbers must match"
                )
    chosen = chosen_scorers(config.metrics, TextOptions(config.tokenize, config.lowercase, config.language))
    check_readable(chosen, systems, named_references(reference_lists))
    certainty = Certainty(config.confidence, config.paired, config.resamples or 0)
    scores = figures(with_sources(chosen, sources), systems, reference_lists, certainty)
    return scores if isinstance(hypotheses, Mapping) else scores["hypotheses"]

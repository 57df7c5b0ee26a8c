"""``nmt.score``: what nmt-score prints, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from nmt.config.commands import ScoreConfig
from nmt.config.plain import from_keywords
from nmt.errors import DataError, UsageError
from nmt.plugins import load_plugins
from nmt.scoring import TextOptions
from nmt.scoring.learned import with_sources
from nmt.scoring.systems import (
    Certainty,
    Figure,
    check_form,
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
    """The scores of a system's lines by metric, or those of several systems, given by name, by system and metric.

    ``references``: a line for each line, or several lists of lines; ``sources`` are for the metrics comet and metricx.
    ``options`` are those of nmt-score: ``metrics``, ``confidence``, ``paired``, ``resamples``, ``tokenize``, ``language``,
    ``lowercase``, ``user_dir``.
    """
    given = hypotheses if isinstance(hypotheses, Mapping) else {"hypotheses": hypotheses}
    if not given:
        raise UsageError("there is no system to score")
    systems = {name: list_of_lines(lines, "score") for name, lines in given.items()}
    answers = lists_of_lines(references, "score")
    config = from_keywords(ScoreConfig, options, "score", OPTIONS, sys=list(systems))
    load_plugins(config.user_dir)
    for name, lines in {**systems, **({} if sources is None else {"sources": sources})}.items():
        for wanted in answers:
            if len(lines) != len(wanted):
                raise DataError(
                    f"{name} has {len(lines)} lines, the references have {len(wanted)}; each line needs its counterpart"
                )
    chosen = chosen_scorers(config.metrics, TextOptions(config.tokenize, config.lowercase, config.language))
    check_form(chosen, systems, named_references(answers))
    certainty = Certainty(config.confidence, config.paired, config.resamples or 0)
    found = figures(with_sources(chosen, sources), systems, answers, certainty)
    return found if isinstance(hypotheses, Mapping) else found["hypotheses"]

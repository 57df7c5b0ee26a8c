"""``nmt.score``: what nmt-score prints, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

from nmt.config.choices import PairedTest
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.scoring import Scorer, TextOptions, check_tokenizer, scorers
from nmt.scoring.learned import Learned
from nmt.scoring.systems import Certainty, Figure, figures

Lines = Sequence[str]


@overload
def score(
    hypotheses: Lines,
    references: Lines | Sequence[Lines],
    metrics: Sequence[str] = ...,
    *,
    sources: Lines | None = ...,
    confidence: bool = ...,
    resamples: int | None = ...,
    tokenize: str = ...,
    lowercase: bool = ...,
    language: str = ...,
) -> dict[str, Figure]: ...


@overload
def score(
    hypotheses: Mapping[str, Lines],
    references: Lines | Sequence[Lines],
    metrics: Sequence[str] = ...,
    *,
    sources: Lines | None = ...,
    confidence: bool = ...,
    paired: str = ...,
    resamples: int | None = ...,
    tokenize: str = ...,
    lowercase: bool = ...,
    language: str = ...,
) -> dict[str, dict[str, Figure]]: ...


def score(
    hypotheses: Lines | Mapping[str, Lines],
    references: Lines | Sequence[Lines],
    metrics: Sequence[str] = ("bleu",),
    *,
    sources: Lines | None = None,
    confidence: bool = False,
    paired: str = "none",
    resamples: int | None = None,
    tokenize: str = TextOptions.tokenize,
    lowercase: bool = TextOptions.lowercase,
    language: str = TextOptions.language,
) -> dict[str, Figure] | dict[str, dict[str, Figure]]:
    """The scores of a system's lines by metric, or those of several systems, given by name, by system and metric.

    ``references``: a line for each line, or several such lists. ``sources`` are for the metrics comet and metricx. The
    options are those of nmt-score; ``paired`` ("bootstrap" or "randomization") compares systems with the first one.
    """
    if isinstance(hypotheses, str) or isinstance(references, str) or isinstance(metrics, str):
        raise UsageError(
            "score takes lists of lines and of metrics; put a single one in brackets: score([line], [line])"
        )
    if paired not in PairedTest.__members__:
        near = did_you_mean(paired, tuple(PairedTest.__members__))
        raise UsageError(f"unknown test paired='{paired}'{near}; there are: {', '.join(PairedTest.__members__)}")
    systems = hypotheses if isinstance(hypotheses, Mapping) else {"hypotheses": hypotheses}
    if paired != PairedTest.none.name and len(systems) < 2:
        raise UsageError(f"paired='{paired}' compares systems with the first one; give several by name: {{'a': lines}}")
    several = _several(references)
    for name, lines in (*systems.items(), *(("sources", lines) for lines in [sources] if lines is not None)):
        for wanted in several:
            if len(lines) != len(wanted):
                raise DataError(
                    f"{name} has {len(lines)} lines, the references have {len(wanted)}; each line needs its counterpart"
                )
    chosen = scorers_of(metrics, TextOptions(tokenize, lowercase, language))
    certainty = Certainty(confidence, PairedTest[paired], resamples or 0)
    found = figures(with_sources(chosen, sources), systems, several, certainty)
    return found if isinstance(hypotheses, Mapping) else found["hypotheses"]


def scorers_of(metrics: Sequence[str], text: TextOptions) -> dict[str, Scorer]:
    """By name; what is not installed is said at once."""
    if not metrics:
        raise UsageError(f"name a metric; there are: {', '.join(scorers.names())}")
    check_tokenizer(text.tokenize)  # also where no chosen metric would look at it
    return {name: scorers.build(scorers.config_class(name)(), text) for name in metrics}


def with_sources(chosen: Mapping[str, Scorer], sources: Lines | None) -> dict[str, Scorer]:
    """Those that read sources too are given them: of all lines, or of those of a part."""
    found: dict[str, Scorer] = {}
    for name, scorer in chosen.items():
        if not isinstance(scorer, Learned):
            found[name] = scorer
        elif sources is None:
            raise UsageError(f"the metric '{name}' reads the sources, too: --src FILE (of nmt.score: sources=LINES)")
        else:
            found[name] = scorer.with_sources(sources)
    return found


def _several(references: Lines | Sequence[Lines]) -> list[list[str]]:
    """Lists of lines, of which one may be given as it is."""
    lines = [one for one in references if isinstance(one, str)]
    return [lines] if lines else [list(one) for one in references]

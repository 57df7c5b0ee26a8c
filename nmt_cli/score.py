"""nmt-score: compare translations with references; figures and their signatures on standard output."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.choices import PairedTest, PieceMarks, ScoreFormat
from nmt.config.commands import ScoreConfig
from nmt.data.parallel_text import where_they_part
from nmt.data.text import Reading, joined_lines
from nmt.errors import DataError, UsageError
from nmt.scoring import (
    SacreScorer,
    Scorer,
    TextOptions,
    lines_with_piece_marks,
    looks_tokenised,
)
from nmt.scoring.score import scorers_of, with_sources
from nmt.scoring.signs import Signs, signs
from nmt.scoring.systems import Certainty, Figure, figures, in_order, length_labels, part, sentence_scores
from nmt.scoring.tables import drawn
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.score")

_STDIN = "standard input"
_LIKELY = 0.05  # from this p-value on a difference may well be chance
_SIGNS = {
    "empty": "empty",
    "over_long": "over-long",
    "repeated": "repeated n-grams",
    "copies": "copies of the source",
    "unusual_length": "length far from the source",
}
_OTHER_CASE = 0.5  # of the lines: a text of another casing, not a few names


def run(config: ScoreConfig) -> float:
    """Print every metric asked for; the value of the first one for the first system is the command's result."""
    chosen = scorers_of(config.metrics, TextOptions(config.tokenize, config.lowercase, config.language))
    if not config.ref:
        raise UsageError("name the reference to compare with: --ref FILE")
    texts = _read(config)
    systems, references, labels = texts.systems, texts.references, texts.labels
    _check_form(config, chosen, texts)
    _warn(config, systems, references)
    every = with_sources(chosen, texts.sources)
    if config.sentence:
        return _print_sentences(config, every, systems, references)
    certainty = Certainty(config.confidence, config.paired, config.resamples or 0)
    found = {"": figures(every, systems, references, certainty)}
    sizes = {"": len(references[0])}
    for label in in_order(labels):
        theirs = {name: part(labels, label, lines) for name, lines in systems.items()}
        sizes[label] = labels.count(label)
        of_part = with_sources(chosen, texts.sources and part(labels, label, texts.sources))
        found[label] = figures(of_part, theirs, [part(labels, label, lines) for lines in references], certainty)
    trouble = {name: signs(lines, references, texts.sources) for name, lines in systems.items()} if config.signs else {}
    if config.format is ScoreFormat.json:
        print(_as_json(config, sizes, found, trouble))
    else:
        plain = config.format is ScoreFormat.text and len(systems) == 1 and not labels
        lines = _as_lines(found[""]) if plain else _as_table(config, sizes, found)
        print(*lines, *(["", *_table_of_signs(config, trouble)] if trouble else []), sep="\n")
    return next(iter(next(iter(found[""].values())).values())).score.value


def main() -> None:
    launch("score", ScoreConfig, run)


@dataclass(frozen=True)
class Texts:
    """What the files have, line for line; a line that is not text in one of them may be left out of all."""

    systems: dict[str, list[str]]  # by file
    references: list[list[str]]
    sources: list[str] | None
    labels: list[str]  # of each line, or none at all
    numbers: list[int]  # of each line in its file, from 1


def _read(config: ScoreConfig) -> Texts:
    of_systems = [_STDIN if name == "-" else name for name in config.sys or ["-"]]
    by_length = config.split_by == "length"
    of_sources = [config.src] if config.src else []
    of_labels = [config.split_by] if config.split_by and not by_length else []
    names = [*of_systems, *config.ref, *of_sources, *of_labels]
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    columns = [_lines(name, reading) for name in names]
    for name, column in zip(names[1:], columns[1:]):
        if len(column) != len(columns[0]):
            where = f"; {where_they_part(columns[0], column)}" if column and columns[0] else ""
            raise DataError(
                f"{names[0]} has {len(columns[0])} lines, {name} has {len(column)}, but each hypothesis needs its "
                f"{'reference' if name in config.ref else 'counterpart'} on the same line{where}"
            )
    if not columns[0]:
        raise DataError(f"{names[0]} is empty: there is not a single line to score")
    numbers = [number for number, row in enumerate(zip(*columns), start=1) if None not in row]
    rows = [row for row in zip(*columns) if None not in row]
    if not rows:
        raise DataError(f"{names[0]}: no line is left to score, each has bytes that are not UTF-8")
    texts = [[str(line) for line in column] for column in zip(*rows)]
    if config.remove_bpe is not None:
        texts = [joined_lines(lines, config.remove_bpe) for lines in texts]
    rest = iter(texts)
    systems = {name: next(rest) for name in of_systems}
    references = [next(rest) for _ in config.ref]
    sources = next(rest) if of_sources else None
    labels = next(rest) if of_labels else length_labels(sources or references[0]) if by_length else []
    return Texts(systems, references, sources, labels, numbers)


def _check_form(config: ScoreConfig, chosen: Mapping[str, Scorer], texts: Texts) -> None:
    """A line that a metric cannot read is named by its file and number."""
    for scorer in chosen.values():
        if not isinstance(scorer, SacreScorer):
            continue
        hypotheses = [(name, lines, scorer.read_hypothesis) for name, lines in texts.systems.items()]
        references = [(name, lines, scorer.read_reference) for name, lines in zip(config.ref, texts.references)]
        for name, lines, read in (*hypotheses, *references):
            for number, line in zip(texts.numbers, lines if read is not None else ()):
                try:
                    assert read is not None
                    read(line)
                except DataError as error:
                    raise DataError(f"{name}:{number}: {error}") from None


def _lines(name: str, reading: Reading) -> list[str | None]:
    if name != _STDIN:
        return list(reading.lines(Path(name), quiet=False))
    if sys.stdin.isatty():
        logger.info("reading hypotheses from the terminal, one a line; end with Ctrl-D, or name a file: --sys FILE")
    return list(reading.stream(sys.stdin.buffer, _STDIN))


def _warn(config: ScoreConfig, systems: Mapping[str, list[str]], references: list[list[str]]) -> None:
    """Such scores are computed all the same: only the user knows what is meant."""
    several = len(systems) > 1
    for name, hypotheses in systems.items():
        called = f"the hypotheses of {name}" if several else "the hypotheses"
        if config.remove_bpe is not PieceMarks.none:
            _warn_of_pieces(hypotheses, references)
        if config.tokenize not in ("none", "char") and looks_tokenised(hypotheses):
            logger.warning(
                f"{called} look tokenised (punctuation stands apart); score detokenised text, or, if the references are "
                f"tokenised alike, use --tokenize none and say so with the score"
            )
        cased = [line.lower() != line for line in hypotheses], [line.lower() != line for line in references[0]]
        shares = [sum(lines) / len(lines) for lines in cased]
        if not config.lowercase and abs(shares[0] - shares[1]) > _OTHER_CASE:
            lower, other = (called, "the references") if shares[0] < shares[1] else ("the references", called)
            logger.warning(
                f"{lower} are in lower case, and {other} are not; --lowercase scores both so, and says it with the score"
            )


def _print_sentences(
    config: ScoreConfig, chosen: Mapping[str, Scorer], systems: Mapping[str, list[str]], references: list[list[str]]
) -> float:
    """A line for each line, with the scores of each system."""
    found = {
        (name, metric): sentence_scores(scorer, lines, references)
        for name, lines in systems.items()
        for metric, scorer in chosen.items()
    }
    if config.format is ScoreFormat.json:
        rows = [
            {"system": name, "metric": metric, "scores": [round(value, 4) for value in scores]}
            for (name, metric), scores in found.items()
        ]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        heads = [metric if len(systems) == 1 else f"{name} {metric}" for name, metric in found]
        table = [
            [str(number), *(f"{value:.2f}" for value in row)] for number, row in enumerate(zip(*found.values()), 1)
        ]
        if config.format is ScoreFormat.text:
            print(*("\t".join(row) for row in (["line", *heads], *table)), sep="\n")
        else:
            print(*drawn(["line", *heads], table, config.format), sep="\n")
    first = next(iter(found.values()))
    return sum(first) / len(first)


def _as_lines(found: Mapping[str, Mapping[str, Figure]]) -> list[str]:
    """Of one system, as sacreBLEU prints them."""
    lines = []
    for figure in next(iter(found.values())).values():
        score, resampled = figure.score, ""
        if figure.interval is not None:
            resampled = f" (μ = {figure.mean:.2f} ± {figure.interval:.2f})"
        lines.append(f"{score.name}|{score.signature} = {score.value:.2f}{resampled} {score.detail}".rstrip())
    return lines


def _as_table(
    config: ScoreConfig, sizes: Mapping[str, int], found: Mapping[str, Mapping[str, Mapping[str, Figure]]]
) -> list[str]:
    """A row for each system and each part, and below it what the figures are."""
    of_parts, every = len(found) > 1, found[""]
    metrics = {metric: figure.score for metric, figure in next(iter(every.values())).items()}
    head = [*(["part", "lines"] if of_parts else []), "system", *(score.name for score in metrics.values())]
    rows = [
        [*([label or "all", str(sizes[label])] if of_parts else []), name, *map(_cell, figures.values())]
        for label, systems in found.items()
        for name, figures in systems.items()
    ]
    lines = [*drawn(head, rows, config.format), ""]
    lines += [f"{score.name}|{score.signature}" for score in metrics.values()]
    if config.paired is not PairedTest.none:
        lines.append(f"p: of a difference to {next(iter(every))} by chance; *: below {_LIKELY}")
    mark = "% " if config.format is ScoreFormat.latex else ""
    after = len(lines) - len(metrics) - (config.paired is not PairedTest.none)
    return [*lines[:after], *(f"{mark}{line}" for line in lines[after:])]


def _cell(figure: Figure) -> str:
    text = f"{figure.score.value:.2f}"
    if figure.interval is not None:
        text += f" ± {figure.interval:.2f}"
    if figure.p_value is not None:
        text += f" (p = {figure.p_value:.4f}){'*' * (figure.p_value < _LIKELY)}"
    return text


def _warn_of_pieces(hypotheses: list[str], references: list[list[str]]) -> None:
    """Such scores are computed all the same, as are those of the next warning: only the user knows what is meant."""
    marked, in_references = lines_with_piece_marks(hypotheses), sum(map(lines_with_piece_marks, references))
    if not marked and not in_references:
        return
    if marked and in_references:
        what = "what is scored is pieces, not words"
    else:
        cut, whole = ("hypotheses", "references") if marked else ("references", "hypotheses")
        what = f"the {cut} are compared in pieces with {whole} in words"
    logger.warning(
        f"{marked} of {len(hypotheses)} hypotheses contain marks of subword pieces ('@@ ' or '\u2581'), and "
        f"{in_references} of {sum(map(len, references))} references: {what}; join them with --remove-bpe (subword-nmt) or "
        f"--remove-bpe sentencepiece"
    )


def _as_json(
    config: ScoreConfig,
    sizes: Mapping[str, int],
    found: Mapping[str, Mapping[str, Mapping[str, Figure]]],
    trouble: Mapping[str, Signs],
) -> str:
    """Of one system as ever; of several a list of such objects."""
    parts = [
        {
            "sys": None if name == _STDIN else name,
            "ref": list(config.ref),
            "lines": sizes[label],
            **({"part": label} if label else {}),
            "scores": _plain(figures),
            **({"signs": _plain_signs(trouble[name])} if trouble and not label else {}),
        }
        for label, systems in found.items()
        for name, figures in systems.items()
    ]
    return json.dumps(parts[0] if len(parts) == 1 else parts, ensure_ascii=False, indent=2)


def _plain(figures: Mapping[str, Figure]) -> Sequence[dict[str, Any]]:
    return [
        {
            "metric": metric,
            "name": figure.score.name,
            "score": figure.score.value,
            "higher_is_better": figure.score.higher_is_better,
            "signature": figure.score.signature,
            "detail": figure.score.detail,
            **({"mean": figure.mean, "interval": figure.interval} if figure.interval is not None else {}),
            **({"p_value": figure.p_value} if figure.p_value is not None else {}),
        }
        for metric, figure in figures.items()
    ]


def _table_of_signs(config: ScoreConfig, trouble: Mapping[str, Signs]) -> list[str]:
    """A column for each system."""
    ratios = ["-" if one.length_ratio is None else f"{one.length_ratio:.3f}" for one in trouble.values()]
    rows = [["length ratio", *ratios]]
    for sign in next(iter(trouble.values())).counts():
        counts = [(one.counts()[sign], one.lines) for one in trouble.values()]
        rows.append([_SIGNS[sign], *(f"{count} ({100 * count / lines:.1f} %)" for count, lines in counts)])
    return drawn(["sign of trouble", *trouble], rows, config.format)


def _plain_signs(found: Signs) -> dict[str, Any]:
    counts = {sign: {"count": count, "share": count / found.lines} for sign, count in found.counts().items()}
    return {"length_ratio": found.length_ratio, **counts}


if __name__ == "__main__":
    main()

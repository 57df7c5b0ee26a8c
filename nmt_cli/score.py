"""nmt-score: compare translations with references; figures and their signatures on standard output."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from nmt.config.choices import PieceMarks, ScoreFormat
from nmt.config.commands import ScoreConfig
from nmt.data.parallel_text import where_they_part
from nmt.data.text import Reading, joined_lines
from nmt.errors import DataError, UsageError
from nmt.scoring import Score, TextOptions, check_tokenizer, lines_with_piece_marks, looks_tokenised, scorers
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.score")

_STDIN = "standard input"


def run(config: ScoreConfig) -> float:
    """Print every metric asked for; the value of the first one is the command's result."""
    if not config.metrics:
        raise UsageError(f"name a metric: --metrics {','.join(scorers.names())}")
    check_tokenizer(config.tokenize)  # also where no chosen metric would look at it
    text = TextOptions(tokenize=config.tokenize, lowercase=config.lowercase)
    chosen = {name: scorers.build(scorers.config_class(name)(), text) for name in config.metrics}
    if not config.ref:
        raise UsageError("name the reference to compare with: --ref FILE")
    hypotheses, references = _read(config)
    if config.remove_bpe is not None:
        hypotheses, *references = (joined_lines(lines, config.remove_bpe) for lines in (hypotheses, *references))
    if config.remove_bpe is not PieceMarks.none:
        _warn_of_pieces(hypotheses, references)
    if config.tokenize not in ("none", "char") and looks_tokenised(hypotheses):
        logger.warning(
            "the hypotheses look tokenised (punctuation stands apart); score detokenised text, or, if the references "
            "are tokenised alike, use --tokenize none and say so with the score"
        )
    scores = {name: scorer(hypotheses, references) for name, scorer in chosen.items()}
    if config.format is ScoreFormat.json:
        print(_as_json(config, len(hypotheses), scores))
    else:
        for score in scores.values():
            print(f"{score.name}|{score.signature} = {score.value:.2f} {score.detail}".rstrip())
    return next(iter(scores.values())).value


def main() -> None:
    launch("score", ScoreConfig, run)


def _read(config: ScoreConfig) -> tuple[list[str], list[list[str]]]:
    """Hypotheses and each reference, line for line; a line that is not text in one of them may be left out of all."""
    from_stdin = config.sys in (None, "-")
    names = [_STDIN if from_stdin else str(config.sys), *config.ref]
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    columns = [list(reading.lines(Path(name), quiet=False)) for name in names[from_stdin:]]
    if from_stdin:
        if sys.stdin.isatty():
            logger.info("reading hypotheses from the terminal, one a line; end with Ctrl-D, or name a file: --sys FILE")
        columns.insert(0, list(reading.stream(sys.stdin.buffer, _STDIN)))
    for name, column in zip(names[1:], columns[1:]):
        if len(column) != len(columns[0]):
            where = f"; {where_they_part(columns[0], column)}" if column and columns[0] else ""
            raise DataError(
                f"{names[0]} has {len(columns[0])} lines, {name} has {len(column)}, but each hypothesis needs its "
                f"reference on the same line{where}"
            )
    if not columns[0]:
        raise DataError(f"{names[0]} is empty: there is not a single line to score")
    rows = [row for row in zip(*columns) if None not in row]
    if not rows:
        raise DataError(f"{names[0]}: no line is left to score, each has bytes that are not UTF-8")
    hypotheses, *references = ([str(line) for line in column] for column in zip(*rows))
    return hypotheses, references


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


def _as_json(config: ScoreConfig, lines: int, scores: dict[str, Score]) -> str:
    found = [
        {
            "metric": metric,
            "name": score.name,
            "score": score.value,
            "higher_is_better": score.higher_is_better,
            "signature": score.signature,
            "detail": score.detail,
        }
        for metric, score in scores.items()
    ]
    tree = {"sys": config.sys, "ref": list(config.ref), "lines": lines, "scores": found}
    return json.dumps(tree, ensure_ascii=False, indent=2)


if __name__ == "__main__":
    main()

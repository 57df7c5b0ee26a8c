"""Translations and references as nmt-score and nmt-compare read them: line for line, with warnings where they look odd."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config.choices import CONTINUED, WORD_START, PieceMarks
from nmt.config.scored_text import ScoredTextConfig
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import misalignment
from nmt.data.text.piece_marks import joined_lines
from nmt.errors import DataError, UsageError, quantity
from nmt.scoring import lines_with_piece_marks, looks_tokenized

logger = logging.getLogger("nmt.score")

STDIN = "standard input"
_OTHER_CASE = 0.5  # of the lines: a text of another casing, not a few names


@dataclass(frozen=True)
class Texts:
    """Parallel lines of all files. ``--on-invalid-utf8 skip`` drops a line from all files if one has invalid bytes there."""

    systems: dict[str, list[str]]  # by file
    references: list[list[str]]
    sources: list[str] | None
    labels: list[str] | None  # of each line, where there is a file of them
    numbers: list[int]  # of each line in its file, from 1


def read_texts(config: ScoredTextConfig, file_of_labels: str | None = None) -> Texts:
    """Read all files; refuse those that do not match line by line."""
    if not config.ref:
        raise UsageError("name the reference to compare with: --ref FILE")
    of_systems = [STDIN if name == "-" else name for name in config.sys or ["-"]]
    of_sources = [config.src] if config.src else []
    of_labels = [file_of_labels] if file_of_labels else []
    names = [*of_systems, *config.ref, *of_sources, *of_labels]
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    columns = [_lines(name, reading) for name in names]
    for name, column in zip(names[1:], columns[1:]):
        if len(column) != len(columns[0]):
            where = f"; {misalignment(columns[0], column)}" if column and columns[0] else ""
            raise DataError(
                f"{names[0]} has {quantity(len(columns[0]), 'line')}, {name} has {len(column)}, but each hypothesis needs "
                f"its {'reference' if name in config.ref else 'counterpart'} on the same line{where}"
            )
    if not columns[0]:
        raise DataError(f"{names[0]} is empty: there are no lines to score")
    numbers = [number for number, row in enumerate(zip(*columns), start=1) if None not in row]
    rows = [row for row in zip(*columns) if None not in row]
    if not rows:
        raise DataError(f"{names[0]}: no line is left to score: all have bytes that are not UTF-8")
    texts = [[str(line) for line in column] for column in zip(*rows)]
    labels = texts.pop() if of_labels else None
    if config.remove_bpe is not None:
        texts = [joined_lines(lines, config.remove_bpe) for lines in texts]
    rest = iter(texts)
    systems = {name: next(rest) for name in of_systems}
    references = [next(rest) for _ in config.ref]
    for name, lines in zip(config.ref, references):
        if not any(map(str.strip, lines)):
            raise DataError(f"{name} has only empty lines: there is nothing to compare with")
    for number, label in zip(numbers, labels or ()):
        if not label.strip():
            raise DataError(f"{file_of_labels}:{number}: the line has no label; name the part that it belongs to")
    return Texts(systems, references, next(rest) if of_sources else None, labels, numbers)


def _lines(name: str, reading: Reading) -> list[str | None]:
    if name != STDIN:
        return list(reading.lines(Path(name), quiet=False))
    if sys.stdin.isatty():
        logger.info("reading hypotheses from the terminal, one a line; end with Ctrl-D, or name a file: --sys FILE")
    return list(reading.stream(sys.stdin.buffer, STDIN))


def warn(config: ScoredTextConfig, systems: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]) -> None:
    """Log texts that look unsuitable; they are scored, because only the user knows the intention."""
    called = {name: f"hypotheses of {name}" if len(systems) > 1 else "hypotheses" for name in systems}
    if config.tokenize not in ("none", "char"):
        tokenized = [f"the {called[name]}" for name, lines in systems.items() if looks_tokenized(lines)]
        tokenized += ["the references"] if any(map(looks_tokenized, references)) else []
        if tokenized:
            logger.warning(
                f"{', '.join(tokenized)} look tokenized (spaces around punctuation); score detokenized text, or, if all "
                f"texts have the same tokenization, use --tokenize none and report that with the score"
            )
    for name, hypotheses in systems.items():
        if config.remove_bpe is not PieceMarks.none:
            _warn_of_pieces(called[name], hypotheses, references)
        if not config.lowercase:
            _warn_of_case(f"the {called[name]}", hypotheses, references[0])


def _warn_of_case(called: str, hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Warn if only one side is in lower or upper case. Lines without cased letters on both sides do not count."""
    rows = [pair for pair in zip(hypotheses, references) if all(line.lower() != line.upper() for line in pair)]
    for change, case in ((str.lower, "lower"), (str.upper, "upper")):
        # How many more of the hypotheses than of the references have letters of the other case.
        more = sum((change(line) != line) - (change(answer) != answer) for line, answer in rows)
        if abs(more) > _OTHER_CASE * len(hypotheses):
            lower_or_upper, mixed = (called, "the references") if more < 0 else ("the references", called)
            logger.warning(
                f"{lower_or_upper} are in {case} case, but {mixed} are not; --lowercase lowercases both, "
                f"and records that in the signature"
            )
            return


def _warn_of_pieces(called: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    marked, in_references = lines_with_piece_marks(hypotheses), sum(map(lines_with_piece_marks, references))
    if not marked and not in_references:
        return
    if marked and in_references:
        what = "the score counts subword tokens, not words"
    else:
        cut, whole = (called, "references") if marked else ("references", called)
        what = f"the {cut} are in subword tokens, the {whole} in words"
    logger.warning(
        f"{marked} of {len(hypotheses)} {called} contain subword marks ('{CONTINUED} ' or '{WORD_START}'), and "
        f"{in_references} of {sum(map(len, references))} references: {what}; join the tokens with "
        f"--remove-bpe (subword-nmt) or --remove-bpe sentencepiece"
    )

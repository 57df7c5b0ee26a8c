"""Convert weights of pairs, or of words or tokens of their targets (then eos has weight 1), to weights of tokens."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nmt.config.choices import WeightKind
from nmt.data.corpus.rows import StoredSentences, weight_writer
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import OneFile, PairFile, ParallelText
from nmt.data.vocabulary import Flags
from nmt.errors import DataError, quantity
from nmt.preprocessing.alignments import word_starts, words_of
from nmt.storage.arrays import LEAST_WEIGHT, MOST_WEIGHT

_CHUNK = 2000  # lines


def check_weights(weights: PairFile, text: PairFile, reading: Reading, kind: WeightKind) -> None:
    """Read the weights once: there must be a line for each pair, with numbers; a single one for ``kind`` pair."""
    lines, count = 0, text.count(reading)
    for lines, line in enumerate(_lines(weights, reading, kind), 1):
        numbers = _numbers(line, f"{weights.called(0)}:{lines}")
        if kind is WeightKind.pair and len(numbers) != 1:
            raise DataError(
                f"{weights.called(0)}:{lines}: {quantity(len(numbers), 'number')} instead of one; write one number, or set "
                f"--weight-kind token for weights of words or tokens"
            )
    if lines != count:
        raise DataError(f"{weights.called(0)} has {quantity(lines, 'line')}, but {text.called(0)} has {count}")


def write_weights(
    folder: Path, text: ParallelText, pair: LanguagePair, reading: Reading, kept: Flags, kind: WeightKind
) -> None:
    """Write the weights of a split whose sentences are written; ``kept`` marks its lines in the text."""
    stored = StoredSentences(folder, text.split, pair.target_lang, pair.target.vocabulary)
    tag = np.array(pair.direction().target, dtype=np.int64)
    places = text.select(
        ((f"{part.called(0)}:{number}", line) for number, line in enumerate(_lines(part, reading, kind), 1))
        for part in text.weights
    )
    lines = itertools.compress(zip(text.side(1, reading), places), kept)
    written = 0
    with weight_writer(folder, text.split) as append:
        while chunk := list(itertools.islice(lines, _CHUNK)):
            rows = [np.array(_numbers(line, place), dtype=np.float32) for _, (place, line) in chunk]
            if kind is WeightKind.token:
                targets = [target or "" for target, _ in chunk]
                sentences = [stored[number] for number in range(written, written + len(chunk))]
                starts = word_starts(pair.target, targets, sentences, tag)
                rows = [
                    np.append(_of_tokens(row, target, of_words, len(ids) - len(tag) - 1, place), np.float32(1))
                    for row, target, of_words, ids, (_, (place, _)) in zip(rows, targets, starts, sentences, chunk)
                ]
            append(np.concatenate(rows), np.array([len(row) for row in rows], dtype=np.int64))
            written += len(chunk)


def _of_tokens(numbers: np.ndarray, target: str, starts: list[int] | None, tokens: int, place: str) -> np.ndarray:
    """Return the weight of each token of a target without eos. ``starts``: of its words; None: tokens span words."""
    words = len(words_of(target))
    if len(numbers) == words and starts is not None:
        return np.repeat(numbers, np.diff(starts))
    if len(numbers) == tokens:
        return numbers
    raise DataError(
        f"{place}: {quantity(len(numbers), 'weight')}, but the target has {quantity(words, 'word')} and {tokens} tokens"
    )


def _lines(weights: PairFile, reading: Reading, kind: WeightKind) -> Iterator[str]:
    """In a file of weights alone, invalid bytes are always an error. A pair that ``reading`` skips has weight 1."""
    reading = reading if isinstance(weights, OneFile) else reading.strict("write numbers, as UTF-8 text")
    of_skipped = "1" if kind is WeightKind.pair else ""
    return (of_skipped if line is None else line for line in weights.side(0, reading))


def _number(item: str) -> float:
    """Return a number. Raise ValueError for spellings of Python alone (1_000) and numbers that float64 rounds to 0."""
    number = float(item)
    if not item.isascii() or "_" in item or not (number or re.fullmatch(r"[+-]?[0.]+([eE].*)?", item)):
        raise ValueError
    return number


def _numbers(line: str, place: str) -> list[float]:
    try:
        numbers = [_number(item) for item in line.split()]
    except ValueError:
        raise DataError(f"{place}: {line[:60]!r} is not a weight; give numbers such as 0.5") from None
    for number in numbers:
        if number and not LEAST_WEIGHT <= number <= MOST_WEIGHT:
            raise DataError(f"{place}: the weight {number:.9g} must be 0, or from {LEAST_WEIGHT:g} to {MOST_WEIGHT:,}")
    return numbers

"""Word alignments of a text: reading their files, and turning words into pieces.

A line holds pairs ``i-j``, say ``0-0 1-2 2-1``: source word i belongs to target word j, both counted from 0. That is
what fast_align, eflomal and others write. Words are what stands between spaces and tabs. Every piece of a word is then
aligned to every piece of the words that it belongs to.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nmt.data.corpus import StoredSentences, alignment_files
from nmt.data.encoding import CHUNK_LINES, Flags
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import ParallelText, Reading
from nmt.data.ragged import Ids, RaggedWriter
from nmt.data.tokenizers import Tokenizer
from nmt.errors import DataError

WordPairs = list[tuple[int, int]]

_PAIR = re.compile(r"([0-9]+)-([0-9]+)")
_NONE = np.zeros((0, 2), dtype=np.int64)  # no pairs
_WORD = re.compile(r"[ \t]*[^ \t]+(?:[ \t]+$)?")  # with the space before it, so that all of them are the line


def parse(line: str) -> WordPairs:
    """The pairs of a line; ValueError names what is none."""
    found = []
    for item in line.split():
        match = _PAIR.fullmatch(item)
        if match is None:
            raise ValueError(f"'{item}' is not a pair of word numbers such as 3-4")
        found.append((int(match[1]), int(match[2])))
    return found


def check_alignments(text: ParallelText, reading: Reading, count: int) -> None:
    """Read everything once: a line for each of the ``count`` pairs of the text, and only pairs of words that exist."""
    assert text.alignments is not None
    path, number = text.alignments, 0
    lines = _alignment_lines(path, reading, quiet=False)
    for number, (line, pair) in enumerate(itertools.zip_longest(lines, text.pairs(reading)), 1):
        if number > count or line is None:
            break
        try:
            pairs = parse(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        words = [len(_WORD.findall(side)) for side in pair if side is not None]
        if len(words) == 2:  # of a line that is left out nobody knows the words
            _check_range(path, number, pairs, words)
    if number != count or line is None:
        found = sum(1 for _ in _alignment_lines(path, reading, quiet=True))
        raise DataError(f"{path} has {found} lines, but {text.source} has {count}")


def write_alignments(folder: Path, text: ParallelText, pair: LanguagePair, reading: Reading, kept: Flags) -> int:
    """Write the arrays of a split whose sentences are written; ``kept``: which lines these are.

    Returns how many of them lose their alignments, because their pieces are not those of their words one by one.
    """
    assert text.alignments is not None
    sides = (
        (pair.source, StoredSentences(folder, text.split, pair.source_lang, pair.source.vocabulary)),
        (pair.target, StoredSentences(folder, text.split, pair.target_lang, pair.target.vocabulary)),
    )
    longest = max(int(stored.lengths.max(initial=0)) for _, stored in sides)
    positions, offsets = (folder / name for name in alignment_files(text.split))
    lines = itertools.compress(zip(text.pairs(reading), _alignment_lines(text.alignments, reading, quiet=True)), kept)
    lost = written = 0
    with RaggedWriter(positions, offsets, np.uint16 if longest < 2**16 else np.uint32) as writer:
        while chunk := list(itertools.islice(lines, CHUNK_LINES)):
            numbers = range(written, written + len(chunk))
            starts = [
                _piece_starts(tokenizer, [texts[side] or "" for texts, _ in chunk], [stored[n] for n in numbers])
                for side, (tokenizer, stored) in enumerate(sides)
            ]
            found = [_in_pieces(parse(line), *both) for (_, line), *both in zip(chunk, *starts)]
            lost += sum(one is None for one in found)
            pairs = [_NONE if one is None else one for one in found]
            writer.append(np.concatenate(pairs).ravel(), np.array([one.size for one in pairs], dtype=np.int64))
            written += len(chunk)
    return lost


def _alignment_lines(path: Path, reading: Reading, *, quiet: bool) -> Iterator[str]:
    """An alignment file holds digits: bytes that are not text are an error there whatever is done about them in text."""
    strict = Reading(max_line_bytes=reading.max_line_bytes)
    return (line or "" for line in strict.lines(path, quiet=quiet))


def _check_range(path: Path, number: int, pairs: WordPairs, words: Sequence[int]) -> None:
    for pair in pairs:
        for side, position, count in zip(("source", "target"), pair, words):
            if position >= count:
                raise DataError(
                    f"{path}:{number}: pair {pair[0]}-{pair[1]}, but the {side} has {count} words (counted from 0)"
                )


def _piece_starts(tokenizer: Tokenizer, lines: Sequence[str], sentences: Sequence[Ids]) -> list[list[int] | None]:
    """Of each line the first piece of each word, and the end of the last; None: its pieces go across words.

    ``sentences`` are the ids that were written, ending in eos.
    """
    words = [_WORD.findall(line) for line in lines]
    encoded = iter(tokenizer.encode(list(itertools.chain.from_iterable(words))))
    starts: list[list[int] | None] = []
    for of_line, sentence in zip(words, sentences):
        pieces = list(itertools.islice(encoded, len(of_line)))
        joined = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
        same = np.array_equal(joined, sentence[:-1])
        starts.append(list(itertools.accumulate(map(len, pieces), initial=0)) if same else None)
    return starts


def _in_pieces(pairs: WordPairs, source: list[int] | None, target: list[int] | None) -> Ids | None:
    """Pairs of words -> pairs of pieces [P, 2], by target position, each once."""
    if not pairs:
        return _NONE
    if source is None or target is None:
        return None
    found = {
        (target_piece, source_piece)
        for i, j in pairs
        if i + 1 < len(source) and j + 1 < len(target)  # a line that was left out has no words
        for target_piece in range(target[j], target[j + 1])
        for source_piece in range(source[i], source[i + 1])
    }
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)[:, ::-1]

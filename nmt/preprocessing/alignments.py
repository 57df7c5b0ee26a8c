"""Word alignments of the text become alignments of tokens.

A line of alignments holds pairs ``i-j``, such as ``0-0 1-2 2-1``: source word i is aligned to target word j, both counted
from 0, as fast_align, eflomal and others write them. Spaces and tabs separate words. Every token of a word is then aligned
to every token of the words aligned to it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nmt.data.corpus.rows import StoredSentences, alignment_writer
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import PairFile, ParallelText
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import Flags, Ids
from nmt.errors import DataError, quantity

WordPairs = list[tuple[int, int]]
_CHUNK = 2000  # lines
_PAIR = re.compile(r"([0-9]+)-([0-9]+)")
_NO_PAIRS = np.zeros((0, 2), dtype=np.int64)
_WORD = re.compile(r"[ \t]*[^ \t]+(?:[ \t]+$)?")  # with the space before it: joined, the words are the line


def parse(line: str) -> WordPairs:
    """Return the pairs of a line; a ValueError names a malformed one."""
    pairs = []
    for item in line.split():
        match = _PAIR.fullmatch(item)
        if match is None:
            raise ValueError(f"'{item}' is not a pair of word numbers such as 3-4")
        pairs.append((int(match[1]), int(match[2])))
    return pairs


def check_alignments(path: Path, text: PairFile, reading: Reading) -> None:
    """Read a file of alignments once: it needs a line for each pair of ``text``, and each word must exist."""
    lines = _alignment_lines(path, reading, quiet=False)
    for number, (line, pair) in enumerate(itertools.zip_longest(lines, text.pairs(reading)), 1):
        if line is None or pair is None:
            lengths = (_alignment_lines(path, reading, quiet=True), text.pairs(reading))
            line_count, count = (sum(1 for _ in items) for items in lengths)
            raise DataError(f"{path} has {quantity(line_count, 'line')}, but {text.called(0)} has {count}")
        try:
            links = parse(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        words = [len(words_of(side)) for side in pair if side is not None]
        for link in links if len(words) == 2 else ():  # the words of a skipped line are unknown
            for side, position, count in zip(("source", "target"), link, words):
                if position >= count:
                    fault = f"pair {link[0]}-{link[1]}, but the {side} has {quantity(count, 'word')} (counted from 0)"
                    raise DataError(f"{path}:{number}: {fault}")


def write_alignments(folder: Path, text: ParallelText, pair: LanguagePair, reading: Reading, kept: Flags) -> int:
    """Write the alignments of a split whose sentences are written; ``kept`` marks its lines in the text.

    Return how many pairs lose their alignments: a token of theirs is not part of exactly one word.
    """
    direction = pair.direction()
    tags = direction.source, np.array(direction.target, dtype=np.int64)
    sides = [
        (tokenizer, StoredSentences(folder, text.split, language, tokenizer.vocabulary), tag)
        for (language, tokenizer), tag in zip(pair.sides(), tags)
    ]
    longest = max(int(stored.lengths.max(initial=0)) for _, stored, _ in sides)
    lines_of_files = text.select(_alignment_lines(path, reading, quiet=True) for path in text.alignments)
    lines = itertools.compress(zip(text.pairs(reading), lines_of_files), kept)
    lost = written = 0
    with alignment_writer(folder, text.split, longest) as append:
        while chunk := list(itertools.islice(lines, _CHUNK)):
            numbers = range(written, written + len(chunk))
            starts = [
                word_starts(tokenizer, [texts[side] or "" for texts, _ in chunk], [stored[n] for n in numbers], tag)
                for side, (tokenizer, stored, tag) in enumerate(sides)
            ]
            token_pairs = [_token_pairs(parse(line), *both) for (_, line), *both in zip(chunk, *starts)]
            lost += sum(pairs is None for pairs in token_pairs)
            kept_pairs = [_NO_PAIRS if pairs is None else pairs for pairs in token_pairs]
            append(np.concatenate(kept_pairs).ravel(), np.array([pairs.size for pairs in kept_pairs], dtype=np.int64))
            written += len(chunk)
    return lost


def words_of(line: str) -> list[str]:
    """Return the words of a line, each with the space before it."""
    return _WORD.findall(line)


def _alignment_lines(path: Path, reading: Reading, *, quiet: bool) -> Iterator[str]:
    """Alignments are digits, so invalid bytes are an error here, whatever ``reading`` does about them in text."""
    strict = reading.strict("write pairs of word numbers, as UTF-8 text")
    return (line or "" for line in strict.lines(path, quiet=quiet))


def word_starts(
    tokenizer: Tokenizer, lines: Sequence[str], sentences: Sequence[Ids], tag: Ids
) -> list[list[int] | None]:
    """Return the first token of each word of each line, and the end of the last; None if tokens cross words.

    ``sentences``: the stored ids, which begin with the ``tag`` and end in eos.
    """
    words = [words_of(line) for line in lines]
    encoded = iter(tokenizer.encode(list(itertools.chain.from_iterable(words))))
    starts: list[list[int] | None] = []
    for of_line, sentence in zip(words, sentences):
        tokens = list(itertools.islice(encoded, len(of_line)))
        same = np.array_equal(np.concatenate([tag, *tokens]), sentence[:-1])
        starts.append(list(itertools.accumulate(map(len, tokens), initial=len(tag))) if same else None)
    return starts


def _token_pairs(pairs: WordPairs, source: list[int] | None, target: list[int] | None) -> Ids | None:
    """Pairs of words -> pairs of tokens [P, 2], by target position, each once."""
    if not pairs:
        return _NO_PAIRS
    if source is None or target is None:
        return None
    token_pairs = {
        (target_token, source_token)
        for i, j in pairs
        if i + 1 < len(source) and j + 1 < len(target)  # a skipped line has no words
        for target_token in range(target[j], target[j + 1])
        for source_token in range(source[i], source[i + 1])
    }
    return np.array(sorted(token_pairs), dtype=np.int64).reshape(-1, 2)[:, ::-1]

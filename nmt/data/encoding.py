"""Lines to ids in chunks, by this process or by several, in their order; and word alignments to alignments of pieces.

A line of alignments holds pairs ``i-j``, say ``0-0 1-2 2-1``: source word i belongs to target word j, both counted from 0.
That is what fast_align, eflomal and others write. Words are what stands between spaces and tabs. Every piece of a word is
then aligned to every piece of the words that it belongs to.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import re
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt import interruptions
from nmt.data.corpus import StoredSentences, alignment_files, ragged_writer
from nmt.data.filters import Codes, TextRules, normalised
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import Pair, ParallelText, Part
from nmt.data.text import Reading
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import Flags, Ids, Ints, Vocabulary
from nmt.errors import DataError, StorageError

CHUNK_LINES = 2000
_CHUNK_CHARACTERS = 2**22  # a chunk ends here even if it has fewer lines
_AT_A_TIME = 16  # pairs that a chunk grows by
_CHUNKS_AHEAD = 2  # chunks in flight for each worker: bounded memory

Keys = npt.NDArray[np.uint64]
WordPairs = list[tuple[int, int]]
_PAIR = re.compile(r"([0-9]+)-([0-9]+)")
_NONE = np.zeros((0, 2), dtype=np.int64)  # no pairs
_NO_TAG = np.zeros(0, dtype=np.int64)
_WORD = re.compile(r"[ \t]*[^ \t]+(?:[ \t]+$)?")  # with the space before it, so that all of them are the line


@dataclass(frozen=True)
class EncodedSide:
    """Sentences in one flat array, each ending in eos."""

    tokens: Ids  # uint16 or uint32
    lengths: Ints  # eos included

    def __getitem__(self, kept: Flags) -> EncodedSide:
        if kept.all():
            return self
        return EncodedSide(self.tokens[np.repeat(kept, self.lengths)], self.lengths[kept])


@dataclass(frozen=True)
class EncodedPairs:
    """A chunk of a split. Keys identify text: equal text, equal key."""

    source: EncodedSide
    target: EncodedSide | None
    invalid: Flags  # a side held bytes that are not text
    blank_source: Flags  # nothing but white space
    blank_target: Flags
    copied: Flags  # both sides are the same text
    source_keys: Keys
    pair_keys: Keys
    source_words: Ints  # what stands between white space; zero where only pieces are known
    target_words: Ints
    text_reasons: Codes  # what of the rules for text each pair breaks first

    def take(self, kept: Flags) -> EncodedPairs:
        """Some of the pairs."""
        columns: dict[str, Any] = {name: part if part is None else part[kept] for name, part in vars(self).items()}
        return EncodedPairs(**columns)


@dataclass(frozen=True)
class Chunk:
    """Some pairs on their way to the process that encodes them; the lines of a side are one text, which is sent faster."""

    source: str
    target: str
    invalid: Flags  # a side is left out; its line is empty

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Chunk:
        sides: list[Sequence[str | None]] = [*zip(*pairs)]
        invalid = np.zeros(len(pairs), dtype=bool)
        if any(None in side for side in sides):
            invalid[:] = [None in pair for pair in pairs]
        source, target = ("\n".join([line or "" for line in side]) for side in sides)
        return cls(source, target, invalid)


Job = Callable[[Chunk], EncodedPairs]


def token_type(vocabulary: Vocabulary) -> type[np.unsignedinteger]:
    return np.uint16 if len(vocabulary) <= 2**16 else np.uint32


def encode_all(
    pairs: Iterable[Pair],
    tokenizers: LanguagePair,
    *,
    only_source: bool,
    workers: int,
    rules: TextRules | None = None,
    near: bool = False,
) -> Generator[EncodedPairs, None, None]:
    """Encode every pair, in order, with ``workers`` processes (1: this one). ``rules``: what the text is held to; ``near``:
    texts that differ in case, punctuation and spaces alone have one key."""
    job = partial(_encode, tokenizers, only_source, rules, normalised if near else str)
    if workers == 1:
        yield from map(job, _chunks(iter(pairs)))
    else:
        yield from _in_processes(job, _chunks(iter(pairs)), workers)


def _encode(
    tokenizers: LanguagePair,
    only_source: bool,
    rules: TextRules | None,
    identity: Callable[[str], str],
    chunk: Chunk,
) -> EncodedPairs:
    """``identity``: what of a text its key is made of."""
    source, target = chunk.source.split("\n"), chunk.target.split("\n")
    source_keys, pair_keys = _keys(*(map(identity, side) for side in (source, target)))
    source_words, target_words = _words(source), _words(target)
    return EncodedPairs(
        source=_encode_side(tokenizers.source, source, tokenizers.before_sources()),
        target=None if only_source else _encode_side(tokenizers.target, target, _NO_TAG),
        invalid=chunk.invalid,
        blank_source=source_words == 0,
        blank_target=target_words == 0,
        copied=np.fromiter(map(operator.eq, source, target), dtype=np.bool_, count=len(source)),
        source_keys=source_keys,
        pair_keys=pair_keys,
        source_words=source_words,
        target_words=target_words,
        text_reasons=(
            np.zeros(len(source), dtype=np.int8)
            if rules is None
            else rules.judge(source, None if only_source else target)
        ),
    )


def _encode_side(tokenizer: Tokenizer, lines: Sequence[str], tag: Ids) -> EncodedSide:
    """With the id of the ``tag``, or none, before each line that has any pieces."""
    tokens, lengths = tokenizer.encode_flat(lines)
    if len(tag):
        tagged = lengths > 1
        tokens, lengths = np.insert(tokens, (np.cumsum(lengths) - lengths)[tagged], tag[0]), lengths + tagged
    return EncodedSide(tokens.astype(token_type(tokenizer.vocabulary)), lengths)


def _words(lines: Sequence[str]) -> Ints:
    return np.fromiter(map(len, map(str.split, lines)), dtype=np.int64, count=len(lines))


def _keys(sources: Iterable[str], targets: Iterable[str]) -> tuple[Keys, Keys]:
    """64 bits of each source, and of each pair: of ten million lines two different ones share a key once in 370,000
    corpora."""
    of_sources, of_pairs = list[bytes](), list[bytes]()
    for source, target in zip(sources, targets):
        state = hashlib.blake2b(source.encode("utf-8"), digest_size=8)
        of_sources.append(state.digest())
        state.update(f"\n{target}".encode())
        of_pairs.append(state.digest())
    return np.frombuffer(b"".join(of_sources), dtype="<u8"), np.frombuffer(b"".join(of_pairs), dtype="<u8")


def _chunks(pairs: Iterator[Pair]) -> Iterator[Chunk]:
    """Runs of pairs, short enough in lines and in characters."""
    while chunk := _run(pairs):
        yield Chunk.of(chunk)


def _run(pairs: Iterator[Pair]) -> list[Pair]:
    run: list[Pair] = []
    characters = 0
    while len(run) < CHUNK_LINES and characters < _CHUNK_CHARACTERS:
        more = list(itertools.islice(pairs, min(_AT_A_TIME, CHUNK_LINES - len(run))))
        if not more:
            break
        run += more
        characters += sum(map(len, filter(None, itertools.chain.from_iterable(more))))
    return run


_job: Job | None = None  # of a worker process, set when it starts


def _start_worker(job: Job) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the main process decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _encode_in_worker(chunk: Chunk) -> EncodedPairs:
    assert _job is not None
    return _job(chunk)


def _in_processes(job: Job, chunks: Iterator[Chunk], workers: int) -> Iterator[EncodedPairs]:
    """Like ``map``, with a bounded number of chunks on their way."""
    pool = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(job,))
    waiting: deque[Future[EncodedPairs]] = deque()
    try:
        for chunk in chunks:
            with interruptions.held():  # processes are started when the first tasks come
                waiting.append(pool.submit(_encode_in_worker, chunk))
            if len(waiting) >= workers * _CHUNKS_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise StorageError(
            f"a worker process ended unexpectedly (out of memory?); try fewer than workers={workers} (--workers)"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def parse(line: str) -> WordPairs:
    """The pairs of a line; ValueError names what is none."""
    found = []
    for item in line.split():
        match = _PAIR.fullmatch(item)
        if match is None:
            raise ValueError(f"'{item}' is not a pair of word numbers such as 3-4")
        found.append((int(match[1]), int(match[2])))
    return found


def check_alignments(path: Path, part: Part, reading: Reading) -> None:
    """Read everything once: a line for each pair of a part that was counted, and only pairs of words that exist."""
    lines = _alignment_lines(path, reading, quiet=False)
    for number, (line, pair) in enumerate(itertools.zip_longest(lines, part.pairs(reading)), 1):
        if line is None or pair is None:
            lengths = (_alignment_lines(path, reading, quiet=True), part.pairs(reading))
            found, count = (sum(1 for _ in one) for one in lengths)
            raise DataError(f"{path} has {found} lines, but {part.called(0)} has {count}")
        try:
            pairs = parse(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        words = [len(_WORD.findall(side)) for side in pair if side is not None]
        for one in pairs if len(words) == 2 else ():  # of a line that is left out nobody knows the words
            for side, position, there in zip(("source", "target"), one, words):
                if position >= there:
                    fault = f"pair {one[0]}-{one[1]}, but the {side} has {there} words (counted from 0)"
                    raise DataError(f"{path}:{number}: {fault}")


def write_alignments(folder: Path, text: ParallelText, pair: LanguagePair, reading: Reading, kept: Flags) -> int:
    """Write the arrays of a split whose sentences are written; ``kept``: which lines these are. Returns how many of them
    lose their alignments, because their pieces are not those of their words one by one."""
    sides = (
        (
            pair.source,
            StoredSentences(folder, text.split, pair.source_lang, pair.source.vocabulary),
            pair.before_sources(),
        ),
        (pair.target, StoredSentences(folder, text.split, pair.target_lang, pair.target.vocabulary), _NO_TAG),
    )
    longest = max(int(stored.lengths.max(initial=0)) for _, stored, _ in sides)
    positions, offsets = (folder / name for name in alignment_files(text.split))
    every = text.taken(_alignment_lines(path, reading, quiet=True) for path in text.alignments)
    lines = itertools.compress(zip(text.pairs(reading), every), kept)
    lost = written = 0
    with ragged_writer(positions, offsets, np.uint16 if longest < 2**16 else np.uint32) as append:
        while chunk := list(itertools.islice(lines, CHUNK_LINES)):
            numbers = range(written, written + len(chunk))
            starts = [
                _piece_starts(tokenizer, [texts[side] or "" for texts, _ in chunk], [stored[n] for n in numbers], tag)
                for side, (tokenizer, stored, tag) in enumerate(sides)
            ]
            found = [_in_pieces(parse(line), *both) for (_, line), *both in zip(chunk, *starts)]
            lost += sum(one is None for one in found)
            pairs = [_NONE if one is None else one for one in found]
            append(np.concatenate(pairs).ravel(), np.array([one.size for one in pairs], dtype=np.int64))
            written += len(chunk)
    return lost


def _alignment_lines(path: Path, reading: Reading, *, quiet: bool) -> Iterator[str]:
    """An alignment file holds digits: bytes that are not text are an error there whatever is done about them in text."""
    strict = Reading(max_line_bytes=reading.max_line_bytes)
    return (line or "" for line in strict.lines(path, quiet=quiet))


def _piece_starts(
    tokenizer: Tokenizer, lines: Sequence[str], sentences: Sequence[Ids], tag: Ids
) -> list[list[int] | None]:
    """Of each line the first piece of each word, and the end of the last; None: its pieces go across words.
    ``sentences``: the ids that were written, which begin with the ``tag`` and end in eos."""
    words = [_WORD.findall(line) for line in lines]
    encoded = iter(tokenizer.encode(list(itertools.chain.from_iterable(words))))
    starts: list[list[int] | None] = []
    for of_line, sentence in zip(words, sentences):
        pieces = list(itertools.islice(encoded, len(of_line)))
        joined = np.concatenate([tag, *pieces])
        same = np.array_equal(joined, sentence[:-1])
        starts.append(list(itertools.accumulate(map(len, pieces), initial=len(tag))) if same else None)
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

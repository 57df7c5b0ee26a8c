"""Lines to ids in chunks, by this process or by several; the order of the lines is kept."""

from __future__ import annotations

import hashlib
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import Pair
from nmt.data.ragged import Ids, Lengths
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import EOS, UNK, Vocabulary
from nmt.errors import StorageError

CHUNK_LINES = 2000
_CHUNK_CHARACTERS = 2**22  # a chunk ends here even if it has fewer lines
_CHUNKS_AHEAD = 2  # chunks in flight for each worker: bounded memory

Flags = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class EncodedSide:
    """Sentences in one flat array, each ending in eos."""

    tokens: Ids  # uint16 or uint32
    lengths: Lengths  # eos included

    def __getitem__(self, kept: Flags) -> EncodedSide:
        return EncodedSide(self.tokens[np.repeat(kept, self.lengths)], self.lengths[kept])

    @property
    def num_pieces(self) -> int:
        """Without the eos."""
        return len(self.tokens) - len(self.lengths)

    @property
    def num_unknown(self) -> int:
        return int(np.count_nonzero(self.tokens == UNK))


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

    def take(self, kept: Flags) -> EncodedPairs:
        """Some of the pairs."""
        columns: dict[str, Any] = {name: part if part is None else part[kept] for name, part in vars(self).items()}
        return EncodedPairs(**columns)


Job = Callable[[Sequence[Pair]], EncodedPairs]


def token_type(vocabulary: Vocabulary) -> type[np.unsignedinteger]:
    return np.uint16 if len(vocabulary) <= 2**16 else np.uint32


def encode_all(
    pairs: Iterable[Pair], tokenizers: LanguagePair, *, only_source: bool, workers: int
) -> Generator[EncodedPairs, None, None]:
    """Encode every pair, in order, with ``workers`` processes (1: this one)."""
    job = partial(_encode, tokenizers, only_source)
    if workers == 1:
        yield from map(job, _chunks(pairs))
    else:
        yield from _in_processes(job, _chunks(pairs), workers)


def _encode(tokenizers: LanguagePair, only_source: bool, chunk: Sequence[Pair]) -> EncodedPairs:
    source = [source or "" for source, _ in chunk]
    target = [target or "" for _, target in chunk]
    return EncodedPairs(
        source=_encode_side(tokenizers.source, source),
        target=None if only_source else _encode_side(tokenizers.target, target),
        invalid=_flags(None in pair for pair in chunk),
        blank_source=_flags(not line.strip() for line in source),
        blank_target=_flags(not line.strip() for line in target),
        copied=_flags(s == t for s, t in zip(source, target)),
        source_keys=_keys(source),
        pair_keys=_keys(f"{s}\n{t}" for s, t in zip(source, target)),
    )


def _encode_side(tokenizer: Tokenizer, lines: Sequence[str]) -> EncodedSide:
    sentences = tokenizer.encode(lines)
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences)) + 1
    tokens = np.full(int(lengths.sum()), EOS, dtype=token_type(tokenizer.vocabulary))
    text = np.ones(len(tokens), dtype=bool)
    text[np.cumsum(lengths) - 1] = False
    tokens[text] = np.concatenate(sentences)
    return EncodedSide(tokens, lengths)


def _flags(values: Iterable[bool]) -> Flags:
    return np.fromiter(values, dtype=np.bool_)


def _keys(texts: Iterable[str]) -> Keys:
    """64 bits of each text: of ten million lines two different ones share a key once in 370,000 corpora."""
    digests = (hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), dtype="<u8")


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Runs of pairs, short enough in lines and in characters."""
    chunk: list[Pair] = []
    characters = 0
    for source, target in pairs:
        chunk.append((source, target))
        characters += len(source or "") + len(target or "")
        if len(chunk) == CHUNK_LINES or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


_job: Job | None = None  # of a worker process, set when it starts


def _start_worker(job: Job) -> None:
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the main process decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _encode_in_worker(chunk: Sequence[Pair]) -> EncodedPairs:
    assert _job is not None
    return _job(chunk)


def _in_processes(job: Job, chunks: Iterator[list[Pair]], workers: int) -> Iterator[EncodedPairs]:
    """Like ``map``, with a bounded number of chunks on their way."""
    pool = ProcessPoolExecutor(workers, initializer=_start_worker, initargs=(job,))
    waiting: deque[Future[EncodedPairs]] = deque()
    try:
        for chunk in chunks:
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

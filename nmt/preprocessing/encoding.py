"""Lines to ids in chunks, in this process or in several, in the order of the lines."""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nmt.data.language_pair import LanguagePair
from nmt.data.text.parallel import Pair
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import Flags, Ids
from nmt.errors import StorageError
from nmt.preprocessing.filters import TextFilter, normalized
from nmt.preprocessing.pairs import COLUMNS, EncodedPairs, EncodedSide, Keys, token_type
from nmt.workers import WorkerEnded, mapped

CHUNK_LINES = 2000
_CHUNK_CHARACTERS = 2**22  # a chunk ends here even if it has fewer lines
_AT_A_TIME = 16  # pairs that a chunk grows by


@dataclass(frozen=True)
class Chunk:
    """Pairs for the process that encodes them. The lines of a side are one string, which is sent faster."""

    first: int  # number of the first pair in the text
    source: str
    target: str
    invalid: Flags  # a side is missing; its line is empty

    @classmethod
    def of(cls, first: int, pairs: Sequence[Pair]) -> Chunk:
        sides: list[Sequence[str | None]] = [*zip(*pairs)]
        invalid = np.zeros(len(pairs), dtype=bool)
        if any(None in side for side in sides):
            invalid[:] = [None in pair for pair in pairs]
        source, target = ("\n".join([line or "" for line in side]) for side in sides)
        return cls(first, source, target, invalid)


def encode_all(
    pairs: Iterable[Pair],
    tokenizers: LanguagePair,
    *,
    only_source: bool,
    workers: int,
    text_filter: TextFilter | None = None,
    near: bool = False,
    first: int = 0,
) -> Generator[EncodedPairs, None, None]:
    """Encode every pair, in order, with ``workers`` processes (1: this one).

    ``near``: texts that differ only in case, punctuation and spaces get equal keys. ``first``: number of the first pair.
    """
    encode = partial(_encode, tokenizers, only_source, text_filter, normalized if near else str)
    chunks = _chunks(iter(pairs), first)
    if workers == 1:
        yield from map(encode, chunks)
        return
    try:
        yield from mapped(encode, chunks, workers)
    except WorkerEnded as end:
        raise StorageError(
            f"a worker process ended unexpectedly ({end}); if memory was short, lower workers={workers} (--workers)"
        ) from None


def _encode(
    tokenizers: LanguagePair,
    only_source: bool,
    text_filter: TextFilter | None,
    identity: Callable[[str], str],
    chunk: Chunk,
) -> EncodedPairs:
    """``identity``: the part of a text from which its key is made."""
    source, target = chunk.source.split("\n"), chunk.target.split("\n")
    direction = tokenizers.direction()
    sides = [_encode_side(tokenizers.source, source, direction.source, least=2)]  # an empty source stays empty
    if not only_source:
        sides.append(_encode_side(tokenizers.target, target, np.array(direction.target, dtype=np.int64), least=1))
    columns = np.zeros(len(source), dtype=COLUMNS)
    columns["number"] = np.arange(chunk.first, chunk.first + len(source))
    columns["source_key"], columns["pair_key"] = _keys(*(map(identity, side) for side in (source, target)))
    columns["source_words"], columns["target_words"] = (
        np.fromiter(map(len, map(str.split, lines)), dtype=np.int64, count=len(lines)) for lines in (source, target)
    )
    columns["blank_source"], columns["blank_target"] = columns["source_words"] == 0, columns["target_words"] == 0
    columns["copied"] = np.fromiter(map(operator.eq, source, target), dtype=np.bool_, count=len(source))
    columns["invalid"] = chunk.invalid
    if text_filter is not None:
        columns["text_verdict"] = text_filter.judge(source, None if only_source else target)
    return EncodedPairs(sides, columns)


def _encode_side(tokenizer: Tokenizer, lines: Sequence[str], tag: Ids, least: int) -> EncodedSide:
    """Encode lines, with the id of the ``tag`` (or none) before each line that has ``least`` tokens, eos included."""
    tokens, lengths = tokenizer.encode_flat(lines)
    if len(tag):
        tagged = lengths >= least
        tokens, lengths = np.insert(tokens, (np.cumsum(lengths) - lengths)[tagged], tag[0]), lengths + tagged
    return EncodedSide(tokens.astype(token_type(tokenizer.vocabulary)), lengths)


def _keys(sources: Iterable[str], targets: Iterable[str]) -> tuple[Keys, Keys]:
    """Return 64 bits of each source and of each pair. Ten million lines have two different ones with equal keys in one of
    370,000 corpora."""
    of_sources, of_pairs = list[bytes](), list[bytes]()
    for source, target in zip(sources, targets):
        state = hashlib.blake2b(source.encode("utf-8"), digest_size=8)
        of_sources.append(state.digest())
        state.update(f"\n{target}".encode())
        of_pairs.append(state.digest())
    return np.frombuffer(b"".join(of_sources), dtype="<u8"), np.frombuffer(b"".join(of_pairs), dtype="<u8")


def _chunks(pairs: Iterator[Pair], first: int) -> Iterator[Chunk]:
    """Runs of pairs, short enough in lines and in characters."""
    while run := _run(pairs):
        yield Chunk.of(first, run)
        first += len(run)


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

"""Sentence pairs that differ from epoch to epoch: augmented text, and other segmentations of words.

A varied pair is a pure function of the seed, the epoch and its number in the corpus. So a resumed run reads the same pairs,
and any process may make a batch. A pair that a mixture of corpora repeats in an epoch is the same each time.

Each epoch is varied once before it is planned, to know its lengths. With a ``headroom`` this pass is skipped: batches are
planned as if each side had grown by this factor, times the measured growth of its augmentations. A pair that outgrows its
batch is then read unvaried. Without headroom this happens only to pairs that alone exceed a limit.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.config.choices import PieceMarks, Sides
from nmt.config.variation import VariationConfig
from nmt.data.augmentations import Augment, chosen
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import LazyLengths, Lengths
from nmt.data.corpus.stored_text import StoredPairs
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import Direction, tagged
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.randomness import below, drawn
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.vocabulary import EOS, Flags, Ids, Ints
from nmt.errors import UsageError

MEASURED = 1000  # pairs to measure the growth by an augmentation
CHUNK_SIZE = 2048  # pairs varied at a time before an epoch
_SOURCE, _TARGET, _TEXT, _SHARES = range(4)  # purposes of random numbers; those of further augmentations follow
_BEFORE_TRAINING = 0  # epochs are counted from 1

Sentence = Ids  # ending in eos
Pairs = tuple[list[Sentence], list[Sentence]]  # sources and targets
LengthPairs = npt.NDArray[np.int32]
SideLimits = tuple[int | None, int | None]  # tokens of sources and targets; None: no limit
_BOUNDLESS = 2**31


@dataclass(frozen=True, eq=False)
class CorpusTag:
    """The size of a corpus, and the tokens of languages of its sentences."""

    pairs: int
    direction: Direction


@dataclass(frozen=True)
class PairRange:
    """Consecutive pairs of the corpus in an epoch, whose lengths are to be drawn."""

    first: int
    last: int  # not included
    epoch: int


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """The sentences of a batch, by their numbers in the corpus; sliced like an array."""

    numbers: Ints
    epoch: int
    most: SideLimits = (None, None)  # length of each source and target for which the batch was planned

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> PlannedBatch:
        return PlannedBatch(self.numbers[part], self.epoch, self.most)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PlannedBatch)
            and (self.epoch, self.most) == (other.epoch, other.most)
            and np.array_equal(self.numbers, other.numbers)
        )


class PlannedLengths(LazyLengths):
    """Lengths after growth, computed on access."""

    def __init__(self, usual: Lengths, factors: Callable[[Ints], npt.NDArray[np.float64]], limit: int) -> None:
        """``factors``: growth by the numbers of sentences. Growth ends at the ``limit``."""
        self._usual, self._factors, self._limit = usual, factors, limit

    def __len__(self) -> int:
        return len(self._usual)

    def __getitem__(self, index: Any, /) -> Any:
        if isinstance(index, slice):
            numbers = np.arange(*index.indices(len(self)))
        else:
            numbers = np.asarray(index, dtype=np.int64)
        usual = self._usual[index]
        grown = np.ceil(usual * self._factors(numbers.reshape(-1)).reshape(numbers.shape)).astype(np.int64)
        return np.minimum(grown, np.maximum(usual, self._limit))


class Variation:
    """Reads the pairs of a split as they are varied in an epoch."""

    def __init__(
        self,
        split: Split,
        pair: LanguagePair,
        options: VariationConfig,
        seed: int,
        text: StoredPairs | None = None,
        *,
        padded: bool = True,
        tags: Sequence[CorpusTag] | None = None,
    ) -> None:
        """``text`` is needed for augmentations. ``padded``: padding counts towards the size of a batch. ``tags``: those of
        the corpora of the split, in order; None: all have the tag of ``pair``."""
        self._split, self._pair, self._seed, self._text, self._padded = split, pair, seed, text, padded
        self.augments = chosen(options.augment)
        assert text is not None or not self.augments
        self._tags = [CorpusTag(len(split), pair.direction())] if tags is None else tags
        self._ends = [*itertools.accumulate(tag.pairs for tag in self._tags)]
        self._samplers = [
            _sampler(options, tokenizer) if options.sampled_sides in (Sides.both, side) else None
            for side, tokenizer in ((Sides.source, pair.source), (Sides.target, pair.target))
        ]
        self.headroom = options.headroom  # None: every epoch is varied before it is planned
        self._growth = [] if options.headroom is None else [self._measured_growth(augment) for augment in self.augments]

    def ranges(self, epoch: int) -> list[PairRange]:
        """Return the ranges of an epoch whose lengths are needed for planning; none with a headroom."""
        if self.headroom is not None:
            return []
        firsts = range(0, len(self._split), CHUNK_SIZE)
        return [PairRange(first, min(first + CHUNK_SIZE, len(self._split)), epoch) for first in firsts]

    def lengths(self, pairs: PairRange) -> LengthPairs:
        """Return the lengths of varied sources and targets [2, pairs]."""
        sentences = PlannedBatch(np.arange(pairs.first, pairs.last), pairs.epoch)
        return _lengths(self._varied(sentences, self.usual(sentences))).astype(np.int32)

    def planned_lengths(
        self, epoch: int, limits: SideLimits, lengths: Iterable[LengthPairs]
    ) -> tuple[Lengths, Lengths]:
        """Return the lengths of sources and targets for planning. ``lengths``: those of ``ranges``, in order.

        A pair that would exceed the limit of a side is not varied; with a headroom it gets a separate batch.
        """
        assert self._split.target_lengths is not None
        usual = self._split.source_lengths, self._split.target_lengths
        if self.headroom is None:
            return self._drawn_lengths(usual, limits, lengths)
        source, target = (  # a side without a limit always fits
            side if limit is None else PlannedLengths(side, partial(self._factors, place, epoch), limit)
            for place, (side, limit) in enumerate(zip(usual, limits))
        )
        return source, target

    def _drawn_lengths(
        self, usual: tuple[Lengths, Lengths], limits: SideLimits, lengths: Iterable[LengthPairs]
    ) -> tuple[Lengths, Lengths]:
        planned = np.zeros((2, len(self._split)), dtype=np.int32)
        most, end = _bounds(limits), 0
        for part in lengths:
            begin, end = end, end + part.shape[1]
            before = np.stack([side[begin:end] for side in usual])
            planned[:, begin:end] = np.where((part <= most).all(axis=0), part, before)
        return planned[_SOURCE], planned[_TARGET]

    def _factors(self, side: int, epoch: int, numbers: Ints) -> npt.NDArray[np.float64]:
        """Return the expected growth of the sources (0) or targets (1) of these pairs in an epoch."""
        factors = np.full(len(numbers), self.headroom or 1.0)
        for place, growth in enumerate(self._growth):
            factors[self._changes(place, numbers, epoch)] *= growth[side]
        return factors

    def read(self, sentences: PlannedBatch) -> Pairs:
        """Return varied sources and targets, or unvaried ones for pairs that do not fit."""
        usual = self.usual(sentences)
        varied = self._varied(sentences, usual)
        if sentences.most == (None, None):
            return varied
        per_sentence = self.headroom is None or self._padded  # each sentence has its own limit
        fits = _fitting(_lengths(varied), _lengths(usual), sentences.most, per_sentence)
        return replace_unfit(fits, varied, usual)

    def usual(self, sentences: PlannedBatch) -> Pairs:
        """Return unvaried sources and targets."""
        numbers = sentences.numbers.tolist()
        assert self._split.targets is not None
        return [self._split.source(number) for number in numbers], [self._split.targets[number] for number in numbers]

    def _varied(self, sentences: PlannedBatch, usual: Pairs) -> Pairs:
        return self._sampled(self._changed(sentences, usual), sentences.numbers, sentences.epoch)

    def _changes(self, place: int, numbers: Ints, epoch: int) -> Flags:
        """Return whether an augmentation changes each of these pairs in this epoch."""
        return below(drawn(numbers, self._seed, epoch, _SHARES + place), self.augments[place].share)

    def _changed(self, sentences: PlannedBatch, usual: Pairs) -> Pairs:
        """Apply the augmentations, and tokenize the changed text."""
        numbers = sentences.numbers
        changes = [self._changes(place, numbers, sentences.epoch) for place in range(len(self.augments))]
        changed = np.flatnonzero(np.any(changes, axis=0)) if changes else np.zeros(0, dtype=np.int64)
        seeds = drawn(numbers, self._seed, sentences.epoch, _TEXT)
        texts = []
        for row in changed:
            augments = [augment for augment, flags in zip(self.augments, changes) if flags[row]]
            texts.append(self._changed_text(int(numbers[row]), augments, Random(int(seeds[row]))))
        return self._put(usual, numbers, changed, texts)

    def _changed_text(self, number: int, augments: Sequence[Augment], random: Random) -> tuple[str, str]:
        assert self._text is not None
        source, target = before = self._text[number]
        for augment in augments:
            source, target = augment.change(source, target, random)
        return (source, target) if source.strip() and target.strip() else before

    def _put(self, usual: Pairs, numbers: Ints, rows: Sequence[int] | Ints, texts: list[tuple[str, str]]) -> Pairs:
        """Replace the pairs in some ``rows`` by tokenized texts. ``numbers``: those of all pairs."""
        sides = [*usual[0]], [*usual[1]]
        if not texts:
            return sides
        sources = self._pair.source.encode([source for source, _ in texts])
        targets = self._pair.target.encode([target for _, target in texts])
        for row, source, target in zip(rows, sources, targets):
            direction = self._tags[bisect.bisect(self._ends, numbers[row])].direction
            (whole,) = tagged([source], direction.source)
            sides[_SOURCE][row] = np.append(whole, EOS)
            sides[_TARGET][row] = np.concatenate([direction.target, target, [EOS]]).astype(np.int64)
        return sides

    def _sampled(self, pairs: Pairs, numbers: Ints, epoch: int) -> Pairs:
        sides = []
        for purpose, (sampler, side) in enumerate(zip(self._samplers, pairs)):
            if sampler is not None and side:
                lengths = np.array([len(sentence) - 1 for sentence in side], dtype=np.int64)
                flat = np.concatenate([sentence[:-1] for sentence in side]).astype(np.int64)
                ids, lengths = sampler(flat, lengths, drawn(numbers, self._seed, epoch, purpose))
                ends = np.cumsum(lengths)
                side = np.split(np.insert(ids, ends, EOS), (ends + np.arange(1, len(ends) + 1))[:-1])
            sides.append(side)
        return sides[_SOURCE], sides[_TARGET]

    def _measured_growth(self, augment: Augment) -> list[float]:
        """Measure the growth of sources and targets by an augmentation; at least 1."""
        numbers = np.unique(np.linspace(0, len(self._split) - 1, MEASURED).astype(np.int64))
        usual = self.usual(PlannedBatch(numbers, _BEFORE_TRAINING))
        seeds = drawn(numbers, self._seed, _BEFORE_TRAINING, _TEXT).tolist()
        texts = [self._changed_text(number, [augment], Random(seed)) for number, seed in zip(numbers.tolist(), seeds)]
        changed = self._put(usual, numbers, range(len(texts)), texts)
        grown = _lengths(changed).sum(1) / _lengths(usual).sum(1)
        return [max(1.0, growth) for growth in grown.tolist()]


def replace_unfit(fits: Flags, varied: Pairs, usual: Pairs) -> Pairs:
    """Return the varied pairs, with the usual ones for those that do not fit."""
    if fits.all():
        return varied
    kept = [[new if fit else old for fit, new, old in zip(fits, *both)] for both in zip(varied, usual)]
    return kept[_SOURCE], kept[_TARGET]


def refuse_cut_text(pair: LanguagePair) -> None:
    """Refuse augmentations of text that was cut before: its marks would be lost."""
    for tokenizer in (pair.source, pair.target):
        if tokenizer.marks is not PieceMarks.none:
            raise UsageError(
                f"variation.augment (--augment) needs raw text, but the text of the corpus was segmented by "
                f"{tokenizer.marks.value} before; make the corpus from raw text, or leave --augment out"
            )


def _sampler(options: VariationConfig, tokenizer: Tokenizer) -> Sampler | None:
    if options.bpe_dropout:
        return tokenizer.bpe_dropout(options.bpe_dropout)
    return None if options.unigram_alpha is None else tokenizer.unigram_sampling(options.unigram_alpha)


def _bounds(limits: SideLimits) -> Ints:  # [2, 1]
    return np.array([[_BOUNDLESS if limit is None else limit] for limit in limits])


def _fitting(lengths: Ints, usual: Ints, most: SideLimits, per_sentence: bool) -> Flags:
    """Return which pairs fit their batch, for lengths [2, pairs].

    ``per_sentence``: the limits hold for each sentence; otherwise pairs share their sum, the first ones first.
    """
    bounds = _bounds(most)
    if per_sentence:
        both: Flags = np.all(lengths <= np.maximum(usual, bounds), axis=0)
        return both
    room, fits = bounds[:, 0] * lengths.shape[1] - usual.sum(1), np.ones(lengths.shape[1], dtype=bool)
    for place, more in enumerate((lengths - usual).T):
        fits[place] = bool(((more <= room) | (more <= 0)).all())
        room = room - more * fits[place]
    return fits


def _lengths(pairs: Pairs) -> Ints:  # [2, pairs]
    return np.array([[len(sentence) for sentence in side] for side in pairs], dtype=np.int64)

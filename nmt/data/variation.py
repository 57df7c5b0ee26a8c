"""Sentence pairs that differ from epoch to epoch: their text is changed, their words are cut in other ways.

What becomes of a pair depends on the seed, the epoch and its number in the corpus, and on nothing else. So a run that goes
on reads what it would have read, and it does not matter which process makes a batch. A pair that a mixture of corpora has
several times in an epoch is the same each time.

Batches are planned on what they will hold: every pair is drawn once before its epoch, to know its lengths. With a
``headroom`` that is left out, and batches are planned as if each side had grown by this factor, times what a change of the
text makes of it where a pair is to be changed. A pair that outgrows its place in its batch is then taken as it stands in
the corpus; without headroom only one that would not even fit into a batch of its own is.
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
from nmt.data.corpus import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.lengths import Lengths, ReadOff
from nmt.data.randomness import below, drawn
from nmt.data.stored_text import StoredPairs
from nmt.data.tags import tagged
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.vocabulary import EOS, Flags, Ids, Ints
from nmt.errors import UsageError

MEASURED = 1000  # pairs, for what an augmentation makes of lengths
TOGETHER = 2048  # pairs that are drawn at once before an epoch
_SOURCE, _TARGET, _TEXT, _SHARES = range(4)  # what random numbers are for; the shares of further augmentations follow
_BEFORE_TRAINING = 0  # epochs are counted from 1

Sentence = Ids  # its pieces, ending in eos
Pairs = tuple[list[Sentence], list[Sentence]]  # the sources and the targets of several
ShortInts = npt.NDArray[np.int32]
Room = tuple[int | None, int | None]  # pieces of sources and of targets; None: as many as they take
_BOUNDLESS = 2**31


@dataclass(frozen=True, eq=False)
class Tagged:
    """A corpus among several: its pairs, and the id of the language tag before each of its sources, or none."""

    pairs: int
    tag: Ids


@dataclass(frozen=True)
class Part:
    """Some pairs of an epoch, one after the other in the corpus, whose lengths are wanted."""

    first: int
    last: int  # not included
    epoch: int


@dataclass(frozen=True, eq=False)
class Sentences:
    """The sentences of a batch, by their numbers in the corpus; a part of it is cut out like one of an array."""

    numbers: Ints
    epoch: int
    most: Room = (None, None)  # pieces that each source and each target has room for in the planned batch

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> Sentences:
        return Sentences(self.numbers[part], self.epoch, self.most)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sentences)
            and (self.epoch, self.most) == (other.epoch, other.most)
            and np.array_equal(self.numbers, other.numbers)
        )


class PlannedLengths(ReadOff):
    """Lengths that have grown, found when they are asked for."""

    def __init__(self, usual: Lengths, factors: Callable[[Ints], npt.NDArray[np.float64]], limit: int) -> None:
        """``factors`` of sentences by their numbers; what has grown stays within the ``limit``."""
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
    """Reads the pairs of a split as they are in an epoch."""

    def __init__(
        self,
        split: Split,
        pair: LanguagePair,
        options: VariationConfig,
        seed: int,
        text: StoredPairs | None = None,
        *,
        padded: bool = True,
        tags: Sequence[Tagged] | None = None,
    ) -> None:
        """``text`` is needed for augmentations. ``padded``: a batch is as large as its longest sentence times their number,
        else as all its pieces together. ``tags``: of each corpus of the split in turn; None: all have that of ``pair``."""
        self._split, self._pair, self._seed, self._text, self._padded = split, pair, seed, text, padded
        self.augments = chosen(options.augment)
        assert text is not None or not self.augments
        self._tags = [Tagged(len(split), pair.before_sources())] if tags is None else tags
        self._ends = [*itertools.accumulate(one.pairs for one in self._tags)]
        self._samplers = [
            _sampler(options, tokenizer) if options.sampled_sides in (Sides.both, side) else None
            for side, tokenizer in ((Sides.source, pair.source), (Sides.target, pair.target))
        ]
        self.headroom = options.headroom  # None: every epoch is drawn before it is planned
        self._growth = [] if options.headroom is None else [self._measured_growth(augment) for augment in self.augments]

    def parts(self, epoch: int) -> list[Part]:
        """Of an epoch that is drawn before it is planned; none with a headroom."""
        if self.headroom is not None:
            return []
        firsts = range(0, len(self._split), TOGETHER)
        return [Part(first, min(first + TOGETHER, len(self._split)), epoch) for first in firsts]

    def lengths(self, part: Part) -> ShortInts:
        """[2, pairs] of sources and targets, as drawn."""
        sentences = Sentences(np.arange(part.first, part.last), part.epoch)
        drawn = self._sampled(self._changed(sentences, self.usual(sentences)), sentences.numbers, part.epoch)
        return _lengths(drawn).astype(np.int32)

    def planned_lengths(self, epoch: int, limits: Room, lengths: Iterable[ShortInts]) -> tuple[Lengths, Lengths]:
        """How long batches take the sources and the targets to be. ``lengths``: of ``parts``, in their order. A pair that
        would go beyond the limit of a side is not varied, or with a headroom has a batch to itself."""
        assert self._split.target_lengths is not None
        usual = self._split.source_lengths, self._split.target_lengths
        if self.headroom is None:
            return self._drawn_lengths(usual, limits, lengths)
        source, target = (  # on a side without a limit nothing has to fit
            side if limit is None else PlannedLengths(side, partial(self._factors, place, epoch), limit)
            for place, (side, limit) in enumerate(zip(usual, limits))
        )
        return source, target

    def _drawn_lengths(
        self, usual: tuple[Lengths, Lengths], limits: Room, lengths: Iterable[ShortInts]
    ) -> tuple[Lengths, Lengths]:
        planned = np.zeros((2, len(self._split)), dtype=np.int32)
        most, end = _bounds(limits), 0
        for part in lengths:
            begin, end = end, end + part.shape[1]
            before = np.stack([side[begin:end] for side in usual])
            planned[:, begin:end] = np.where((part <= most).all(axis=0), part, before)
        return planned[_SOURCE], planned[_TARGET]

    def _factors(self, side: int, epoch: int, numbers: Ints) -> npt.NDArray[np.float64]:
        """By how much the sources (0) or the targets (1) of these pairs are taken to grow in an epoch."""
        factors = np.full(len(numbers), self.headroom or 1.0)
        for place, growth in enumerate(self._growth):
            factors[self._changes(place, numbers, epoch)] *= growth[side]
        return factors

    def read(self, sentences: Sentences) -> Pairs:
        """The sources and the targets."""
        usual = self.usual(sentences)
        varied = self._sampled(self._changed(sentences, usual), sentences.numbers, sentences.epoch)
        if sentences.most == (None, None):
            return varied
        alone = self.headroom is None or self._padded  # what one needs does not depend on the others
        fits = _fitting(_lengths(varied), _lengths(usual), sentences.most, alone)
        return replaced(fits, varied, usual)

    def usual(self, sentences: Sentences) -> Pairs:
        """As the corpus has them."""
        numbers = sentences.numbers.tolist()
        return [self._split.source(number) for number in numbers], [self._split.target(number) for number in numbers]

    def _changes(self, place: int, numbers: Ints, epoch: int) -> Flags:
        """Whether an augmentation changes these pairs in this epoch."""
        return below(drawn(numbers, self._seed, epoch, _SHARES + place), self.augments[place].share)

    def _changed(self, sentences: Sentences, usual: Pairs) -> Pairs:
        """After the augmentations, with the pieces that the tokenizer makes of the new text."""
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
        """The pieces of some texts in place of the usual ones of pairs with these ``numbers``."""
        sides = [*usual[0]], [*usual[1]]
        if not texts:
            return sides
        sources = self._pair.source.encode([source for source, _ in texts])
        targets = self._pair.target.encode([target for _, target in texts])
        for row, source, target in zip(rows, sources, targets):
            tag = self._tags[bisect.bisect(self._ends, numbers[row])].tag
            (whole,) = tagged([source], tag)
            sides[_SOURCE][row], sides[_TARGET][row] = np.append(whole, EOS), np.append(target, EOS)
        return sides

    def _sampled(self, pairs: Pairs, numbers: Ints, epoch: int) -> Pairs:
        sides = []
        for purpose, (sampler, side) in enumerate(zip(self._samplers, pairs)):
            if sampler is not None and side:
                lengths = np.array([len(one) - 1 for one in side], dtype=np.int64)
                flat = np.concatenate([one[:-1] for one in side]).astype(np.int64)
                ids, lengths = sampler(flat, lengths, drawn(numbers, self._seed, epoch, purpose))
                ends = np.cumsum(lengths)
                side = np.split(np.insert(ids, ends, EOS), (ends + np.arange(1, len(ends) + 1))[:-1])
            sides.append(side)
        return sides[_SOURCE], sides[_TARGET]

    def _measured_growth(self, augment: Augment) -> list[float]:
        """What an augmentation makes of the lengths of sources and targets; they are not taken to shrink."""
        numbers = np.unique(np.linspace(0, len(self._split) - 1, MEASURED).astype(np.int64))
        usual = self.usual(Sentences(numbers, _BEFORE_TRAINING))
        seeds = drawn(numbers, self._seed, _BEFORE_TRAINING, _TEXT).tolist()
        texts = [self._changed_text(number, [augment], Random(seed)) for number, seed in zip(numbers.tolist(), seeds)]
        changed = self._put(usual, numbers, range(len(texts)), texts)
        grown = _lengths(changed).sum(1) / _lengths(usual).sum(1)
        return [max(1.0, growth) for growth in grown.tolist()]


def replaced(fits: Flags, varied: Pairs, usual: Pairs) -> Pairs:
    """The varied pairs, and where these do not fit the usual ones."""
    if fits.all():
        return varied
    kept = [[new if fit else old for fit, new, old in zip(fits, *both)] for both in zip(varied, usual)]
    return kept[_SOURCE], kept[_TARGET]


def refuse_cut_text(pair: LanguagePair) -> None:
    """Letters of text that was cut before cannot be changed: its marks would be lost."""
    for tokenizer in (pair.source, pair.target):
        if tokenizer.marks is not PieceMarks.none:
            raise UsageError(
                f"variation.augment (--augment) changes raw text, and that of the corpus was cut into pieces of "
                f"{tokenizer.marks.value} before; make the corpus of raw text, or leave --augment out"
            )


def _sampler(options: VariationConfig, tokenizer: Tokenizer) -> Sampler | None:
    if options.bpe_dropout:
        return tokenizer.bpe_dropout(options.bpe_dropout)
    return None if options.unigram_alpha is None else tokenizer.unigram_sampling(options.unigram_alpha)


def _bounds(room: Room) -> Ints:
    """[2, 1]"""
    return np.array([[_BOUNDLESS if one is None else one] for one in room])


def _fitting(lengths: Ints, usual: Ints, most: Room, alone: bool) -> Flags:
    """Which pairs stay within their batch, for lengths [2, pairs]. Where one needs room of its own, that is ``most``; else
    they share it, and those that come first have it first."""
    places = _bounds(most)
    if alone:
        both: Flags = np.all(lengths <= np.maximum(usual, places), axis=0)
        return both
    room, fits = places[:, 0] * lengths.shape[1] - usual.sum(1), np.ones(lengths.shape[1], dtype=bool)
    for place, more in enumerate((lengths - usual).T):
        fits[place] = bool(((more <= room) | (more <= 0)).all())
        room = room - more * fits[place]
    return fits


def _lengths(pairs: Pairs) -> Ints:
    """[2, pairs]"""
    return np.array([[len(one) for one in side] for side in pairs], dtype=np.int64)

"""The words of a translation aligned to those of its source, by a model's attention.

A model that reads both sentences (teacher forcing) attends to the source when it writes each piece. A target word is aligned
to the source word that its pieces attend to most: what is looked at is summed over the pieces of a word, those who look are
averaged. A word that attends most to what is no word, the end of the source or a language tag, stays unaligned: measured,
this makes fewer errors than taking the best word (docs/aligning.md).

Layers and heads differ in how well they align. In some it is not the row where a piece is written that does it best, but
the row after it, where the decoder has read the piece: Chen et al. 2020, "Accurate Word Alignment Induction from Neural
Machine Translation" (arXiv:2004.14837), which calls it shift.

Shapes: B sentences, H heads, S source positions, T target positions, W words of the source, V words of the target.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmt.config.choices import LongLines
from nmt.data.vocabulary import EOS, Floats, Ids, Ints
from nmt.data.words import words, words_of_spans
from nmt.errors import UsageError
from nmt.search.decoding import Engine
from nmt.translation.halving import in_halves
from nmt.translation.lines import Line
from nmt.translation.looking import module_of
from nmt.translation.reading import Batch, Part
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("nmt.translation")

Pair = tuple[str | None, str | None]  # a source and its translation; None counts as an empty line
UNALIGNED = -1
_AT_ONCE = 1024  # pairs that are read together, sorted by length and counted as progress
MEAN = 0  # in place of a head


@dataclass(frozen=True)
class Place:
    """Where in a decoder's attention alignments are read."""

    layer: int  # from 1
    head: int  # from 1, or MEAN
    shift: bool  # in the row after a piece, where it was read, and not in that where it was written

    def flags(self, prefix: str = "") -> str:
        """As a command line names it; of the other direction with the prefix "reverse-"."""
        shift = f"--{prefix}shift" if self.shift else f"--no-{prefix}shift"
        return f"--{prefix}layer {self.layer} --{prefix}head {self.head} {shift}"


@dataclass(frozen=True)
class Wanted:
    """What of a place is fixed; None: it is chosen."""

    layer: int | None = None
    head: int | None = None
    shift: bool | None = None


class Aligner:
    """Aligns with one model, or with the mean attention of several of one shape."""

    def __init__(
        self,
        translator: Translator,
        path: str,
        *,
        tag: str | None = None,
        max_tokens: int | None = None,
        max_source_length: int | None = None,
    ) -> None:
        """``path``: how messages call the model."""
        self.path = path
        self.pair = translator.pair
        self._translator = translator
        usual = translator.configuration()
        self._config = dataclasses.replace(
            usual,
            score_reference=True,
            long_lines=LongLines.truncate,
            buffer_size=_AT_ONCE,
            tag=tag,
            max_tokens=max_tokens,
            max_source_length=max_source_length or usual.max_source_length,
        )
        self.num_layers, self.num_heads = self._shape()

    def _shape(self) -> tuple[int, int]:
        """Layers and heads that attend to the source, as they do for a pair of empty sentences."""
        nothing = [np.array([EOS])]
        of_members = [_attention(member, nothing, nothing) for member in self._translator.members]
        shapes = {(len(maps), maps[0].size(1)) if maps else (0, 0) for maps in of_members}
        if (0, 0) in shapes:
            raise UsageError(f"the model {self.path} has no attention to the source, which alignments are made of")
        if len(shapes) > 1:
            raise UsageError(
                f"the models of {self.path} differ in their layers or heads, so their attention has no mean; align with "
                f"one of them"
            )
        return shapes.pop()

    def places(self, wanted: Wanted, prefix: str = "") -> list[Place]:
        """All that have what is wanted: each head of each layer and the mean of a layer's heads, with and without shift."""
        for name, asked, count in (("layer", wanted.layer, self.num_layers), ("head", wanted.head, self.num_heads)):
            if asked is not None and asked > count:
                what = f"layers that attend to the source: {count}" if name == "layer" else f"heads in a layer: {count}"
                raise UsageError(f"--{prefix}{name} {asked} is more than the model {self.path} has ({what})")
        heads = [MEAN, *(range(1, self.num_heads + 1) if self.num_heads > 1 else ())]
        layers, shifts = range(1, self.num_layers + 1), (False, True)
        return [
            Place(*place)
            for place in itertools.product(
                layers if wanted.layer is None else [wanted.layer],
                heads if wanted.head is None else [wanted.head],
                shifts if wanted.shift is None else [wanted.shift],
            )
        ]

    def usual(self, wanted: Wanted) -> Place:
        """What is wanted, and of the rest the mean of the heads of the last layer, in the row where a piece was written."""
        return Place(wanted.layer or self.num_layers, wanted.head or MEAN, bool(wanted.shift))

    def align(self, pairs: Iterable[Pair], places: Sequence[Place]) -> Iterator[Ints]:
        """Of each pair, in their order, the source word of each target word [places, V], or UNALIGNED."""
        remaining, begin = iter(pairs), 0
        while window := list(itertools.islice(remaining, _AT_ONCE)):
            lines = [Line(source or "", reference=target or "") for source, target in window]
            found = [np.full((len(places), len(words(line.reference))), UNALIGNED) for line in lines]
            for batch in self._translator.batches(lines, self._config, itertools.count(begin)):
                full = [part for part in batch if part.request.target]
                references = {part.number: lines[part.number - begin].reference for part in full}
                for part, aligned in zip(full, self._aligned(full, references, places)):
                    found[part.number - begin] = aligned
            yield from found
            begin += len(window)

    def _aligned(self, batch: Batch, references: Mapping[int, str], places: Sequence[Place]) -> list[Ints]:
        def work(part: Batch) -> list[Ints]:
            return self._at_once(part, [references[one.number] for one in part], places)

        return in_halves(work, batch, self._translator.members, "lower --max-source-length") if batch else []

    def _at_once(self, batch: Batch, references: Sequence[str], places: Sequence[Place]) -> list[Ints]:
        import torch

        sources = [np.append(part.ids, EOS) for part in batch]
        targets = [np.array([*target, EOS]) for target in self._within_limits(batch, sources)]
        of_members = [_attention(member, sources, targets) for member in self._translator.members]
        return most_attended(
            [torch.stack(maps).mean(0) for maps in zip(*of_members)] if len(of_members) > 1 else of_members[0],
            [self._words_of_source(part) for part in batch],
            [self._words_of_target(line)[: len(target) - 1] for line, target in zip(references, targets)],
            [len(words(line)) for line in references],
            places,
        )

    def _words_of_target(self, line: str) -> list[range]:
        return words_of_spans(line, self.pair.target.spans(line))

    def _within_limits(self, batch: Batch, sources: Sequence[Ids]) -> list[tuple[int, ...]]:
        """The pieces of each target, without those at its end that a model has no positions for, or that are more than
        those of a source may be: one line of a megabyte would fill the memory."""
        lengths = np.array([len(source) for source in sources])
        most = self._config.max_source_length
        targets = [part.request.target for part in batch]
        for part in batch:
            if len(part.request.target) > most:
                logger.warning(
                    f"line {part.number + 1} has a translation of {len(part.request.target)} pieces; only its first {most} "
                    f"are read (raise --max-source-length to read more)"
                )
        for member in self._translator.members:
            limits = member.longest_targets(lengths)
            if limits is not None:
                targets = [target[: limit - 1] for target, limit in zip(targets, limits.tolist())]
        return [target[:most] for target in targets]

    def _words_of_source(self, part: Part) -> list[range]:
        """Of the pieces that are read. Before them may stand tags, which are no words; one that was typed is a word of the
        line, but is read in a form of its own."""
        every = words_of_spans(part.text, self.pair.source.spans(part.text))
        own = every[len(every) - part.of :]
        return [*[range(0)] * part.tags, *own][: len(part.ids)]


def _attention(member: Engine, sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[Tensor, ...]:
    """Of each layer [B, H, T, S], padded; none if the model has no attention to the source. Sentences end in eos."""
    import torch

    from nmt.data.batch import collate
    from nmt.interface import AttentionRequest

    batch = collate(sources, targets).to(torch.device(member.device))
    with torch.inference_mode():
        asked = module_of(member)(batch, AttentionRequest(("cross",))).attention
    return tuple(asked.maps.get("cross", ())) if asked is not None else ()


def most_attended(
    maps: Sequence[Tensor],
    sources: Sequence[Sequence[range]],
    targets: Sequence[Sequence[range]],
    num_words: Sequence[int],
    places: Sequence[Place],
) -> list[Ints]:
    """Of each sentence the source word that each of its ``num_words`` target words attends to most [places, V], or
    UNALIGNED.

    ``maps``: of each layer [B, H, T, S]. ``sources`` and ``targets``: the words of each piece that was read, without the
    end; a piece of none has an empty range. Of a piece that goes across words each has its share of what is looked at.
    """
    import torch

    rows, columns = maps[0].shape[2:]
    of_source, of_target = _joining(sources, columns), _joining(targets, rows - 1, max(num_words))
    of_source[:, :, 0] = of_source.sum(2) == 0.0  # what is no word stands in the place before the words
    of_source /= of_source.sum(2, keepdims=True)
    seen, looking = (torch.from_numpy(matrix).to(maps[0].device) for matrix in (of_source, of_target[:, :, 1:]))
    layers = {place.layer: maps[place.layer - 1].float() @ seen[:, None] for place in places}  # [B, H, T, 1 + W]
    found = []
    for place in places:
        heads = layers[place.layer]
        weights = heads.mean(1) if place.head == MEAN else heads[:, place.head - 1]  # [B, T, 1 + W]
        weights = weights[:, 1:] if place.shift else weights[:, :-1]
        by_words = looking.transpose(1, 2) @ weights  # [B, V, 1 + W]; a word's sum, whose largest is that of the mean
        found.append(by_words.cpu().numpy().argmax(2) - 1)  # a word without pieces has no weights, and the first place
    stacked = np.stack(found, 1)  # [B, places, V]
    return [row[:, :count] for row, count in zip(stacked, num_words)]


def _joining(of_pieces: Sequence[Sequence[range]], size: int, least: int = 0) -> Floats:
    """[B, size, 1 + words] 1 where a piece is part of a word; there is room for ``least`` words at least."""
    most = max((own.stop for pieces in of_pieces for own in pieces), default=0)
    most = max(most, least)
    joining = np.zeros((len(of_pieces), size, 1 + most), dtype=np.float32)
    for matrix, pieces in zip(joining, of_pieces):
        for piece, own in zip(matrix, pieces):
            piece[1 + own.start : 1 + own.stop] = 1.0
    return joining

"""Align the words of a translation to those of its source, by the attention of a model.

A model that reads both sentences (teacher forcing) attends to the source at each target token. A target word is aligned to
the source word that its tokens attend to most: weights are summed over the tokens of a source word and averaged over those
of the target word. A word that attends most to the end of the source or to a language tag stays unaligned; measured, this
makes fewer errors than taking the best word (docs/how-to/align.md).

Layers and heads differ in how well they align. In some, the best row of the attention is not that in which a token is
written but the next one, in which the decoder has read the token: Chen et al. 2020, "Accurate Word Alignment Induction from
Neural Machine Translation" (arXiv:2004.14837), which calls it shift.

Shapes: B sentences, H heads, S source positions, T target positions, W words of the source, V words of the target.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.choices import LongLines
from nmt.data.text.words import words, words_of_spans
from nmt.data.vocabulary import EOS, Floats, Ids, Ints
from nmt.errors import UsageError
from nmt.search.decoding import Engine
from nmt.translation.attention_view import attention_maps
from nmt.translation.lines import Line
from nmt.translation.source_windows import Batch, SourcePart
from nmt.translation.splitting_batches import in_halves
from nmt.translation.translator import Translator

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("nmt.translation")

Pair = tuple[str | None, str | None]  # a source and its translation; None counts as an empty line
UNALIGNED = -1
_AT_ONCE = 1024  # pairs that are read and sorted by length together
MEAN = 0  # number of a head: the mean of all heads of a layer


@dataclass(frozen=True)
class AlignmentHead:
    """The attention head of a decoder that alignments are read from."""

    layer: int  # from 1
    head: int  # from 1, or MEAN
    shift: bool  # read the row after a token, instead of that in which it is written

    def flags(self, prefix: str = "") -> str:
        """Return the flags of a command line. The other direction has the prefix "reverse-"."""
        shift = f"--{prefix}shift" if self.shift else f"--no-{prefix}shift"
        return f"--{prefix}layer {self.layer} --{prefix}head {self.head} {shift}"


@dataclass(frozen=True)
class HeadChoice:
    """The parts of an ``AlignmentHead`` that the user fixed; None: the best is chosen."""

    layer: int | None = None
    head: int | None = None
    shift: bool | None = None


class Aligner:
    """Align with one model, or with the mean attention of several models of one shape."""

    def __init__(
        self,
        translator: Translator,
        path: str,
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        max_tokens: int | None = None,
        max_source_length: int | None = None,
    ) -> None:
        """``path``: the model, for messages."""
        self.path = path
        self.pair = translator.pair
        self._translator = translator
        options: dict[str, Any] = {"source_lang": source_lang, "target_lang": target_lang}
        options |= {"max_tokens": max_tokens, "max_source_length": max_source_length}
        keywords = {name: value for name, value in options.items() if value is not None}
        fixed = {"score_reference": True, "long_lines": LongLines.truncate, "buffer_size": _AT_ONCE}
        self._options = translator.options(keywords, **fixed)
        self.num_layers, self.num_heads = self._shape()

    def _shape(self) -> tuple[int, int]:
        """Return the number of layers and heads that attend to the source, from a pair of empty sentences."""
        nothing = [np.array([EOS])]
        of_members = [_attention(member, nothing, nothing) for member in self._translator.members]
        shapes = {(len(maps), maps[0].size(1)) if maps else (0, 0) for maps in of_members}
        if (0, 0) in shapes:
            raise UsageError(
                f"the model {self.path} has no attention to the source, which aligning needs; use another model"
            )
        if len(shapes) > 1:
            raise UsageError(
                f"the models of {self.path} differ in their numbers of layers or heads, so their attention cannot be "
                f"averaged; align with one of them"
            )
        return shapes.pop()

    def candidate_heads(self, choice: HeadChoice, prefix: str = "") -> list[AlignmentHead]:
        """Return each head of each layer and the mean of its heads, with and without shift, that agree with ``choice``."""
        for name, number, count in (("layer", choice.layer, self.num_layers), ("head", choice.head, self.num_heads)):
            if number is not None and number > count:
                what = f"layers that attend to the source: {count}" if name == "layer" else f"heads in a layer: {count}"
                raise UsageError(f"--{prefix}{name} {number} is out of range for the model {self.path} ({what})")
        numbers = [MEAN, *(range(1, self.num_heads + 1) if self.num_heads > 1 else ())]
        layers, shifts = range(1, self.num_layers + 1), (False, True)
        return [
            AlignmentHead(*parts)
            for parts in itertools.product(
                layers if choice.layer is None else [choice.layer],
                numbers if choice.head is None else [choice.head],
                shifts if choice.shift is None else [choice.shift],
            )
        ]

    def default_head(self, choice: HeadChoice) -> AlignmentHead:
        """Return ``choice``, completed by the mean of the heads of the last layer, in the row where a piece was written."""
        return AlignmentHead(choice.layer or self.num_layers, choice.head or MEAN, bool(choice.shift))

    def align(self, pairs: Iterable[Pair], heads: Sequence[AlignmentHead]) -> Iterator[Ints]:
        """Yield for each pair the source word of each target word [heads, V], or UNALIGNED."""
        remaining, begin = iter(pairs), 0
        while window := list(itertools.islice(remaining, _AT_ONCE)):
            lines = [Line(source or "", reference=target or "") for source, target in window]
            alignments = [np.full((len(heads), len(words(line.reference))), UNALIGNED) for line in lines]
            for batch in self._translator.batches(lines, self._options, itertools.count(begin)):
                full = [part for part in batch if part.request.target]
                references = {part.number: lines[part.number - begin].reference for part in full}
                for part, aligned in zip(full, self._aligned(full, references, heads)):
                    alignments[part.number - begin] = aligned
            yield from alignments
            begin += len(window)

    def _aligned(self, batch: Batch, references: Mapping[int, str], heads: Sequence[AlignmentHead]) -> list[Ints]:
        def work(half: Batch) -> list[Ints]:
            return self._align_batch(half, [references[part.number] for part in half], heads)

        return in_halves(work, batch, self._translator.members, "lower --max-source-length") if batch else []

    def _align_batch(self, batch: Batch, references: Sequence[str], heads: Sequence[AlignmentHead]) -> list[Ints]:
        import torch

        sources = [np.append(part.ids, EOS) for part in batch]
        starts = [part.request.start for part in batch]
        targets = [np.array([*start, *own, EOS]) for start, own in zip(starts, self._within_limits(batch, sources))]
        of_members = [_attention(member, sources, targets) for member in self._translator.members]
        return most_attended(
            [torch.stack(maps).mean(0) for maps in zip(*of_members)] if len(of_members) > 1 else of_members[0],
            [self._words_of_source(part) for part in batch],
            [
                [*[range(0)] * len(start), *words_of_spans(line, self.pair.target.spans(line))][: len(target) - 1]
                for line, start, target in zip(references, starts, targets)
            ],
            [len(words(line)) for line in references],
            heads,
        )

    def _within_limits(self, batch: Batch, sources: Sequence[Ids]) -> list[tuple[int, ...]]:
        """Return the tokens of each target, truncated to the positions of the model and to the limit of a source: a line of
        a megabyte would fill the memory."""
        lengths = np.array([len(source) for source in sources])
        limit = self._options.max_source_length
        targets = [part.request.target for part in batch]
        for part in batch:
            if len(part.request.target) > limit:
                logger.warning(
                    f"the translation of line {part.number + 1} has {len(part.request.target)} tokens; only the "
                    f"first {limit} are read (raise --max-source-length to read more)"
                )
        for member in self._translator.members:
            limits = member.longest_targets(lengths)
            if limits is not None:
                starts = [len(part.request.start) for part in batch]
                targets = [own[: most - 1 - start] for own, most, start in zip(targets, limits.tolist(), starts)]
        return [target[:limit] for target in targets]

    def _words_of_source(self, part: SourcePart) -> list[range]:
        """Return the words of each token that is read. Language tags before the text belong to no word, even if the line
        itself begins with one."""
        words_of_text = words_of_spans(part.text, self.pair.source.spans(part.text))
        words_of_part = words_of_text[len(words_of_text) - part.num_text_pieces :]
        return [*[range(0)] * part.tags, *words_of_part][: len(part.ids)]


def _attention(member: Engine, sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[Tensor, ...]:
    """Return the attention of each layer to the source [B, H, T, S], padded; empty if the model has none."""
    _, maps = attention_maps(member, sources, targets, ("cross",))
    return tuple(maps.get("cross", ()))


def most_attended(
    maps: Sequence[Tensor],
    sources: Sequence[Sequence[range]],
    targets: Sequence[Sequence[range]],
    num_words: Sequence[int],
    heads: Sequence[AlignmentHead],
) -> list[Ints]:
    """Return for each sentence the source word that each of its ``num_words`` target words attends to most [heads, V], or
    UNALIGNED.

    ``maps``: of each layer [B, H, T, S]. ``sources`` and ``targets``: the words of each token that was read, without eos; a
    token outside words has an empty range. The weight of a token that spans several words is divided among them.
    """
    import torch

    rows, columns = maps[0].shape[2:]
    of_source, of_target = _word_matrix(sources, columns), _word_matrix(targets, rows - 1, max(num_words))
    of_source[:, :, 0] = of_source.sum(2) == 0.0  # column 0: tokens outside words
    of_source /= of_source.sum(2, keepdims=True)
    seen, looking = (torch.from_numpy(matrix).to(maps[0].device) for matrix in (of_source, of_target[:, :, 1:]))
    layers = {head.layer: maps[head.layer - 1].float() @ seen[:, None] for head in heads}  # [B, H, T, 1 + W]
    source_words = []
    for head in heads:
        of_layer = layers[head.layer]
        weights = of_layer.mean(1) if head.head == MEAN else of_layer[:, head.head - 1]  # [B, T, 1 + W]
        weights = weights[:, 1:] if head.shift else weights[:, :-1]
        # The sum of a word has the same maximum as its mean.
        by_words = looking.transpose(1, 2) @ weights  # [B, V, 1 + W]
        source_words.append(by_words.cpu().numpy().argmax(2) - 1)  # a word without tokens has no weights: column 0
    stacked = np.stack(source_words, 1)  # [B, heads, V]
    return [row[:, :count] for row, count in zip(stacked, num_words)]


def _word_matrix(sentences: Sequence[Sequence[range]], size: int, least: int = 0) -> Floats:
    """Return a matrix [B, size, 1 + words]: 1 where a token is part of a word; at least ``least`` words."""
    num_words = max(least, *(span.stop for sentence in sentences for span in sentence), 0)
    matrices = np.zeros((len(sentences), size, 1 + num_words), dtype=np.float32)
    for matrix, sentence in zip(matrices, sentences):
        for piece, span in zip(matrix, sentence):
            piece[1 + span.start : 1 + span.stop] = 1.0
    return matrices

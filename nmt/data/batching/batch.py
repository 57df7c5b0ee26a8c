"""A batch as the models see it.

Shapes: B sentences, S source positions, T target positions, M real target positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, PAD, Ids

ALIGNMENTS = "alignments"  # of `Batch.extras`: [P, 3] sentence of the batch, source position, target position


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded on the right. Made on the CPU; offsets let models flatten without a synchronisation."""

    source: Tensor  # [B, S] ids, eos-terminated, right-padded
    source_lengths: Tensor  # [B] eos included
    target_in: Tensor  # [B, T] bos y1 ...
    target_lengths: Tensor  # [B] eos included
    targets: Tensor  # [M] y1 ... eos of every sentence, flat, in batch order
    source_offsets: Tensor  # [B + 1] where each sentence starts if the source is flattened
    target_offsets: Tensor  # [B + 1]
    num_source_tokens: int  # real ones, eos included
    sentence_ids: Tensor  # [B] position in the corpus, to restore order
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # optional corpus columns

    @property
    def num_sentences(self) -> int:
        return self.source.size(0)

    @property
    def num_tokens(self) -> int:
        """Real target tokens, eos included."""
        return self.targets.size(0)

    def to(self, device: torch.device) -> Batch:
        """Return a copy on the device. The copy is asynchronous if the batch is ``pinned``."""
        return self if device.type == "cpu" else self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> Batch:
        """Return a copy in page-locked memory, from which a GPU copies asynchronously."""
        return self._each(lambda tensor: tensor.pin_memory())

    def on_device(self) -> Iterator[Tensor]:
        """Yield the tensors that ``to`` moves."""
        yield from (*self._columns().values(), *self.extras.values())

    def _columns(self) -> dict[str, Tensor]:
        """Return the tensors that models read. ``sentence_ids`` stay on the CPU."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Tensor) and name != "sentence_ids"}

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        columns: dict[str, Any] = {name: change(column) for name, column in self._columns().items()}
        return replace(self, **columns, extras={name: change(column) for name, column in self.extras.items()})


def pad(sentences: Sequence[Ids], value: int = PAD) -> tuple[Tensor, Tensor]:
    """Return right-padded ids [B, longest] and lengths [B]."""
    lengths = np.fromiter((len(sentence) for sentence in sentences), dtype=np.int64, count=len(sentences))
    padded = np.full((len(sentences), int(lengths.max(initial=0))), value, dtype=np.int64)
    for row, sentence in zip(padded, sentences):
        row[: len(sentence)] = sentence
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def collate(
    sources: Sequence[Ids],
    targets: Sequence[Ids],
    sentence_ids: Sequence[int] | None = None,
    extras: Mapping[str, Tensor] | None = None,
) -> Batch:
    """Make a batch of sentence pairs, whose sides end in eos."""
    source, source_lengths = pad(sources)
    shifted, target_lengths = pad([np.concatenate(([BOS], target[:-1])) for target in targets])
    ids = sentence_ids if sentence_ids is not None else range(len(sources))
    return Batch(
        source=source,
        source_lengths=source_lengths,
        target_in=shifted,
        target_lengths=target_lengths,
        targets=torch.from_numpy(np.concatenate([np.asarray(target, dtype=np.int64) for target in targets])),
        source_offsets=_offsets(source_lengths),
        target_offsets=_offsets(target_lengths),
        num_source_tokens=int(source_lengths.sum()),
        sentence_ids=torch.tensor(list(ids), dtype=torch.int64),
        extras=extras or {},
    )


def with_targets(batch: Batch, tokens: Tensor, lengths: Tensor) -> Batch:
    """Return a batch with each source K times in a row and new targets: ids [B * K, T] ending in eos, lengths [B * K].

    It is on the device of ``batch``. Extra columns belong to the old targets and are dropped.
    """
    count = lengths.size(0) // batch.num_sentences
    tokens = tokens[:, : int(lengths.max())]
    real = torch.arange(tokens.size(1), device=tokens.device)[None, :] < lengths[:, None]
    shifted = torch.cat([tokens.new_full((len(tokens), 1), BOS), tokens[:, :-1]], 1)
    source_lengths = batch.source_lengths.repeat_interleave(count)
    return Batch(
        source=batch.source.repeat_interleave(count, 0),
        source_lengths=source_lengths,
        target_in=shifted.masked_fill(~real, PAD),
        target_lengths=lengths,
        targets=tokens[real],
        source_offsets=_offsets(source_lengths),
        target_offsets=_offsets(lengths),
        num_source_tokens=count * batch.num_source_tokens,
        sentence_ids=batch.sentence_ids.repeat_interleave(count),
    )


def join_alignments(of_sentences: Sequence[Ids]) -> Tensor:
    """Join the positions [P, 2] of each sentence of a batch to one column [P, 3]."""
    rows = np.repeat(np.arange(len(of_sentences)), [len(pairs) for pairs in of_sentences])
    pairs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *of_sentences]).astype(np.int64)
    return torch.from_numpy(np.column_stack([rows, pairs]))


def _offsets(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

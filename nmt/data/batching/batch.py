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

from nmt.data.vocabulary import BOS, PAD, Ids, Ints
from nmt.devices.kinds import device_of
from nmt.short_repr import ShortRepr

ALIGNMENTS = "alignments"  # of `Batch.extras`: [P, 3] sentence of the batch, source position, target position
WEIGHTS = "weights"  # of `Batch.extras`: [M] the weight of each target


@dataclass(frozen=True)
class Batch(ShortRepr):
    """Sentence pairs, padded on the right. Lengths are known on the CPU too, so that no model must wait to read them."""

    source: Tensor  # [B, S] ids, eos-terminated, right-padded
    source_lengths: Tensor  # [B] eos included
    target_in: Tensor  # [B, T] bos y1 ...; with `started` tokens of languages between them
    target_lengths: Tensor  # [B] eos included
    targets: Tensor  # [M] y1 ... eos of every sentence, flat, in batch order
    source_offsets: Tensor  # [B + 1] where each sentence starts if the source is flattened
    target_offsets: Tensor  # [B + 1]
    source_sizes: Ints  # [B] the source lengths, for Python
    target_sizes: Ints  # [B]
    sentence_ids: Tensor  # [B] position in the corpus, to restore order
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # optional corpus columns
    started: int = 0  # tokens before y1 that the model reads but does not predict: `target_lengths` count them

    @property
    def num_sentences(self) -> int:
        return self.source.size(0)

    @property
    def num_source_tokens(self) -> int:
        """Real source tokens, eos included."""
        return int(self.source_sizes.sum())

    @property
    def num_tokens(self) -> int:
        """Real target tokens, eos included."""
        return self.targets.size(0)

    @property
    def starts(self) -> Tensor:
        """The tokens [B, started] that targets start with."""
        return self.target_in[:, 1 : 1 + self.started]

    @property
    def weights(self) -> Tensor | None:
        """The weight [M] of each target; None: all are 1."""
        return self.extras.get(WEIGHTS)

    @property
    def sentence_weights(self) -> Tensor | None:
        """The mean weight [B] of the targets of each sentence; None: all are 1."""
        if self.weights is None:
            return None
        started = (int(self.target_sizes.sum()) - len(self.weights)) // self.num_sentences  # ``whole`` has reset it
        lengths = self.target_lengths - started
        sentence = torch.repeat_interleave(lengths, output_size=len(self.weights))  # [M]
        return self.weights.new_zeros(len(lengths)).index_add(0, sentence, self.weights) / lengths

    def whole(self) -> Batch:
        """Return the batch as models read it: all real target positions are targets. Those not predicted hold pad."""
        if not self.started:
            return self
        targets = self.targets.new_full((int(self.target_sizes.sum()),), PAD)
        return replace(self, targets=targets.index_copy(0, self.predicted(), self.targets), started=0)

    def predicted(self) -> Tensor:
        """Return the numbers [M] of ``targets`` among all real target positions."""
        sentences, count = self.num_sentences, self.num_tokens
        skipped = self.started * torch.arange(1, sentences + 1, device=self.targets.device)
        repeats = self.target_lengths - self.started
        everyone = torch.arange(count, device=self.targets.device)
        return everyone + torch.repeat_interleave(skipped, repeats, output_size=count)

    def to(self, device: torch.device) -> Batch:
        """Return a batch of the CPU on the device."""
        return self if device.type == "cpu" else self._each(device_of(device).moved)

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
    started: int = 0,
) -> Batch:
    """Make a batch of sentence pairs, whose sides end in eos. The first ``started`` tokens of each target are read, but not
    predicted."""
    source, source_lengths = pad(sources)
    shifted, target_lengths = pad([np.concatenate(([BOS], target[:-1])) for target in targets])
    ids = sentence_ids if sentence_ids is not None else range(len(sources))
    return Batch(
        source=source,
        source_lengths=source_lengths,
        target_in=shifted,
        target_lengths=target_lengths,
        targets=torch.from_numpy(np.concatenate([np.asarray(target[started:], dtype=np.int64) for target in targets])),
        source_offsets=offsets_of(source_lengths),
        target_offsets=offsets_of(target_lengths),
        source_sizes=source_lengths.numpy(),
        target_sizes=target_lengths.numpy(),
        sentence_ids=torch.tensor(list(ids), dtype=torch.int64),
        extras=extras or {},
        started=started,
    )


def join_alignments(of_sentences: Sequence[Ids]) -> Tensor:
    """Join the positions [P, 2] of each sentence of a batch to one column [P, 3]."""
    rows = np.repeat(np.arange(len(of_sentences)), [len(pairs) for pairs in of_sentences])
    pairs = np.concatenate([np.zeros((0, 2), dtype=np.int64), *of_sentences]).astype(np.int64)
    return torch.from_numpy(np.column_stack([rows, pairs]))


def offsets_of(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])

"""Output layers from hidden states to scores over the vocabulary, and the result of teacher forcing.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions, D width of
the hidden states, V vocabulary, V' vocabulary shortlist.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.data.vocabulary import PAD
from nmt.interface import AttentionMaps, AttentionRequest, Batch, DecoderOutput, Memory, OutputLayer, Scoring
from nmt.layers.embeddings import Embedding
from nmt.layers.padding import real_rows
from nmt.trees import RowTree


class MatrixOutput(OutputLayer):
    """Scores by a matrix and an optional bias."""

    @abstractmethod
    def matrix(self) -> tuple[Tensor, Tensor | None]:
        """Return weight [V, D] and bias [V]."""

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, *self.matrix())

    def restrict(self, vocabulary: Tensor) -> Scoring:
        weight, bias = self.matrix()
        own, part = weight.detach()[vocabulary], None if bias is None else bias.detach()[vocabulary]
        if vocabulary.dim() == 1:
            return SharedVocabulary(own, part)
        absent = absences(vocabulary, own.dtype)
        return OwnVocabularies(own.transpose(1, 2).contiguous(), absent if part is None else absent + part[:, None])

    def linear(self) -> tuple[Tensor, Tensor | None] | None:
        return self.matrix()


class LinearOutput(MatrixOutput):
    """A separate matrix [V, D], with or without bias [V]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    @classmethod
    def with_bias(cls, inputs: int, outputs: int) -> LinearOutput:
        """Build a layer with the initialization of torch's linear layers."""
        linear = nn.Linear(inputs, outputs)
        return cls(linear.weight.detach(), linear.bias.detach())

    def matrix(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias


class TiedOutput(MatrixOutput):
    """The matrix of an embedding: Press and Wolf 2017; Vaswani et al. 2017, section 3.4."""

    def __init__(self, embedding: Embedding, *, bias: bool = False) -> None:
        super().__init__()
        self._embedding = (embedding,)  # a tuple, so that a checkpoint stores the matrix once
        self.bias = nn.Parameter(torch.zeros(len(embedding.weight))) if bias else None

    def matrix(self) -> tuple[Tensor, Tensor | None]:
        return self._embedding[0].weight, self.bias


@dataclass
class SharedVocabulary(RowTree):
    """A linear map over a vocabulary shortlist, the same for all sentences."""

    weight: Tensor  # [V', D]
    bias: Tensor | None  # [V']

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)

    def rows(self, index: Tensor) -> SharedVocabulary:
        return self


@dataclass
class OwnVocabularies(RowTree):
    """A linear map over a separate vocabulary shortlist for each sentence; part of a memory, whose sentences may leave."""

    weight: Tensor  # [B, D, V']
    bias: Tensor  # [B, 1, V'] -inf at padding of shorter lists

    def logits(self, hidden: Tensor) -> Tensor:
        hypotheses = hidden.view(self.weight.size(0), -1, hidden.size(-1))  # [B, K, D]
        return torch.baddbmm(self.bias, hypotheses, self.weight).flatten(0, 1)


@dataclass
class OwnColumns(RowTree):
    """The scores over a vocabulary shortlist for each sentence, of a layer that is not linear."""

    layer: OutputLayer
    vocabulary: Tensor  # [B, V']
    bias: Tensor  # [B, 1, V']

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self.layer.logits(hidden)  # [N, V]
        scores = scores.view(self.vocabulary.size(0), -1, scores.size(-1))
        columns = self.vocabulary[:, None].expand(-1, scores.size(1), -1)
        return (scores.gather(2, columns) + self.bias).flatten(0, 1)


def absences(vocabulary: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, V'] -> [B, 1, V'], -inf at the padding of a row, 0 at its ids; pad may be the first id."""
    padding = vocabulary == PAD
    padding[:, 0] = False
    absent = torch.zeros(vocabulary.shape, dtype=dtype, device=vocabulary.device).masked_fill_(padding, -torch.inf)
    return absent[:, None]


Self = TypeVar("Self", bound="ScoredMemory")


@dataclass
class ScoredMemory(Memory):
    """A memory with the output layer of a vocabulary shortlist."""

    output: Scoring | None = field(default=None, kw_only=True)  # None: the whole vocabulary

    def scored_by(self: Self, output: OutputLayer, vocabulary: Tensor | None) -> Self:
        """Return the memory with ``output`` restricted to these ids; None: the whole vocabulary."""
        return self if vocabulary is None else replace(self, output=output.restrict(vocabulary))


def decoded(
    states: Tensor,
    batch: Batch,
    attention: AttentionRequest | None,
    cross: Sequence[Tensor] = (),
    *,
    auxiliary: Mapping[str, Tensor] | None = None,
    read_out: Callable[[Tensor], Tensor] | None = None,
) -> DecoderOutput:
    """Return the result of teacher forcing from states [B, T, D].

    ``cross``: attention weights [B, T, S] of one head, by layer, which are returned on request. ``read_out`` maps the real
    states [M, D] to the input of the output layer.
    """
    hidden = real_rows(states, batch.target_lengths, batch.target_offsets, batch.num_tokens)
    hidden = hidden if read_out is None else read_out(hidden)
    if attention is None:
        return DecoderOutput(hidden, auxiliary=auxiliary or {})
    maps = {"cross": tuple(weights[:, None] for weights in cross)} if cross and "cross" in attention.kinds else {}
    return DecoderOutput(hidden, AttentionMaps(maps), auxiliary or {})

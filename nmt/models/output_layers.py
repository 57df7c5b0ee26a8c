"""Output layers, hidden states to scores over the vocabulary, and what models return around them.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions, D width of
the hidden states, V vocabulary, V' a part of it.
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
    """Scores by one matrix and perhaps a bias."""

    @abstractmethod
    def matrix(self) -> tuple[Tensor, Tensor | None]:
        """Weight [V, D] and bias [V]."""

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
    """A matrix [V, D] of its own, with or without bias [V]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    @classmethod
    def with_bias(cls, inputs: int, outputs: int) -> LinearOutput:
        """Its numbers start as those of torch's own linear layers."""
        linear = nn.Linear(inputs, outputs)
        return cls(linear.weight.detach(), linear.bias.detach())

    def matrix(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias


class TiedOutput(MatrixOutput):
    """The matrix of an embedding, which owns it: Press and Wolf 2017; Vaswani et al. 2017, section 3.4."""

    def __init__(self, embedding: Embedding, *, bias: bool = False) -> None:
        super().__init__()
        self._embedding = (embedding,)  # a tuple, so that a saved model holds the matrix once
        self.bias = nn.Parameter(torch.zeros(len(embedding.weight))) if bias else None

    def matrix(self) -> tuple[Tensor, Tensor | None]:
        return self._embedding[0].weight, self.bias


@dataclass
class SharedVocabulary(RowTree):
    """A linear map over a part of the vocabulary, the same for all sentences."""

    weight: Tensor  # [V', D]
    bias: Tensor | None  # [V']

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)

    def rows(self, index: Tensor) -> SharedVocabulary:
        return self


@dataclass
class OwnVocabularies(RowTree):
    """A linear map for each sentence, over a vocabulary of its own. Lives in a memory: sentences leave it."""

    weight: Tensor  # [B, D, V']
    bias: Tensor  # [B, 1, V'] -inf where a sentence has fewer

    def logits(self, hidden: Tensor) -> Tensor:
        hypotheses = hidden.view(self.weight.size(0), -1, hidden.size(-1))  # [B, K, D]
        return torch.baddbmm(self.bias, hypotheses, self.weight).flatten(0, 1)


@dataclass
class OwnColumns(RowTree):
    """For each sentence some of the scores of a layer that is no linear map."""

    layer: OutputLayer
    vocabulary: Tensor  # [B, V']
    bias: Tensor  # [B, 1, V']

    def logits(self, hidden: Tensor) -> Tensor:
        scores = self.layer.logits(hidden)  # [N, V]
        scores = scores.view(self.vocabulary.size(0), -1, scores.size(-1))
        columns = self.vocabulary[:, None].expand(-1, scores.size(1), -1)
        return (scores.gather(2, columns) + self.bias).flatten(0, 1)


def absences(vocabulary: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, V'] -> [B, 1, V'] -inf at the pads that fill up a row, 0 at its ids; the pad itself may stand first."""
    filling = vocabulary == PAD
    filling[:, 0] = False
    absent = torch.zeros(vocabulary.shape, dtype=dtype, device=vocabulary.device).masked_fill_(filling, -torch.inf)
    return absent[:, None]


Self = TypeVar("Self", bound="ScoredMemory")


@dataclass
class ScoredMemory(Memory):
    """A memory to which ``start`` adds what ``step`` scores by."""

    output: Scoring | None = field(default=None, kw_only=True)  # over the short list, if there is one

    def scored_by(self: Self, output: OutputLayer, vocabulary: Tensor | None) -> Self:
        """The same, with ``output`` over these ids."""
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
    """The result of teacher forcing: the real ones of states [B, T, D], and of ``cross``, by layer the weights [B, T, S] of
    one head, what is asked for. ``read_out`` makes of real states [M, D] what the output layer reads."""
    hidden = real_rows(states, batch.target_lengths, batch.target_offsets, batch.num_tokens)
    hidden = hidden if read_out is None else read_out(hidden)
    if attention is None:
        return DecoderOutput(hidden, auxiliary=auxiliary or {})
    asked = {"cross": tuple(weights[:, None] for weights in cross)} if cross and "cross" in attention.kinds else {}
    return DecoderOutput(hidden, AttentionMaps(asked), auxiliary or {})

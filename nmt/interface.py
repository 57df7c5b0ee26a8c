"""The interface between models, search, criterions and the trainer. Read this file first.

Legend of every shape comment in the project:
    B sentences, K beam, N = B*K hypotheses (sentence b owns rows b*K ... b*K+K-1), S source positions, T target
    positions, M real (unpadded) target positions of a batch, D model width, H heads, V vocabulary.
Every tensor is batch-first. Arguments and results are tensors or dataclasses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from nmt.data.batching.batch import Batch as Batch  # part of the interface: plugins import these three from here
from nmt.data.vocabulary import Hypothesis as Hypothesis
from nmt.data.vocabulary import VocabularySizes as VocabularySizes
from nmt.layers.overriding import require_together
from nmt.short_repr import ShortRepr
from nmt.trees import RowTree

__all__ = [
    "AttentionMaps",
    "AttentionRequest",
    "Batch",
    "Decodable",
    "DecoderOutput",
    "DecoderState",
    "EncoderDecoder",
    "Hypothesis",
    "LossReport",
    "Memory",
    "OutputLayer",
    "Scoring",
    "StepOutput",
    "VocabularySizes",
]


@dataclass
class Memory(RowTree):
    """The encoder output: B rows, read-only, never tiled over the beam."""


@dataclass
class DecoderState(RowTree):
    """The state of a decoder between two steps: N rows; positions are a per-row tensor.

    A step consumes its state: only the returned one is valid, so caches may be preallocated and written in place.
    The indices of ``rows`` permute or repeat rows within a sentence, or drop whole sentences.
    """


@dataclass(frozen=True)
class StepOutput(ShortRepr):
    """The result of one decoding step of N hypotheses."""

    scores: Tensor  # [N, V] logits, or log-probabilities if `normalized`
    normalized: bool
    state: DecoderState
    attention: Tensor | None = None  # [N, S] on request; rows sum to 1 over the real source positions

    def log_probabilities(self) -> Tensor:
        """Return natural logarithms [N, V], in float32 or wider."""
        scores = self.scores.to(torch.promote_types(self.scores.dtype, torch.float32))
        return scores if self.normalized else scores.log_softmax(1)


@dataclass(frozen=True)
class AttentionRequest:
    """The attention maps that teacher forcing returns."""

    kinds: tuple[str, ...] = ("cross",)  # of "encoder", "decoder", "cross"


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights by kind, a tensor [B, H, queries, keys] for each layer; 0 at padding."""

    maps: Mapping[str, tuple[Tensor, ...]]


@dataclass(frozen=True)
class DecoderOutput(ShortRepr):
    """The result of teacher forcing: hidden states of the real positions; the output layer computes logits."""

    hidden: Tensor  # [M, D] the real target positions, in batch order; input of the output layer
    attention: AttentionMaps | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)  # named means over this micro-batch


class Decodable(Protocol):
    """The methods that search needs; models and ensembles have them."""

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        """Encode source ids [B, S] that end in eos, right-padded; source_lengths [B] include eos."""

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        """Return the memory, with results that all steps share, and the state before the first step, N = B * beam_size rows.

        ``vocabulary`` is a shortlist of target ids: [V'], or [B, V'] with a row for each sentence. Scores then have V'
        columns, in this order. A shorter row is padded; the scores of its padding are -inf.
        """

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        """Score the next tokens; tokens [N]: the last token of each hypothesis (bos at first). Memory has B rows."""

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        """Return the maximum target length [B], eos included; None: the model has no limit."""


class Scoring(Protocol):
    """The scoring part of a step: the output layer, or its restriction to a vocabulary shortlist."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, D] -> [N, V]"""


class OutputLayer(nn.Module, ABC):
    """Map hidden states to scores over the vocabulary; part of the model, used by the criterion and by ``step``."""

    product_type: torch.dtype | None = None  # dtype of the products of a fused loss; None: the usual one

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse new ``logits`` with inherited ``restrict`` or ``linear``, which would still compute the old scores."""
        super().__init_subclass__(**options)
        why = "which must compute the same scores; override them too (linear may return None)"
        require_together(cls, "logits", ("restrict", "linear"), why)

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""

    @abstractmethod
    def restrict(self, vocabulary: Tensor) -> Scoring:
        """Restrict the scores to a vocabulary shortlist: [V'], or [B, V'] with a row for each sentence."""

    @abstractmethod
    def linear(self) -> tuple[Tensor, Tensor | None] | None:
        """Return weight [V, D] and bias [V] for a fused loss; None: the layer is not one matrix."""


class EncoderDecoder(nn.Module, ABC):
    """A model: a ``Decodable`` that can also be trained by teacher forcing.

    Modules cache nothing between calls. ``step`` over t must equal ``decode`` at t; ``nmt.testing`` checks this and the
    other laws for every registered model.
    """

    output: OutputLayer
    width: int  # for the `noam` schedule: d_model, or the hidden size of a recurrent model
    shapes_depend_on_tokens = False  # True: shapes depend on token values, as with experts
    ignored: tuple[str, ...] = ()  # options off their defaults that have no effect: "model.max_positions=256"
    built_from: tuple[Any, VocabularySizes] | None = None  # its options and sizes; None: not built from options

    @abstractmethod
    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory: ...

    @abstractmethod
    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        """Compute the hidden states of all real target positions, by teacher forcing."""

    @abstractmethod
    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[Memory, DecoderState]: ...

    @abstractmethod
    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput: ...

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return None

    def max_source_length(self) -> int | None:
        """Return the maximum source length, eos included; None: the model has no limit."""
        return None

    def scores(self, hidden: Tensor, restricted: Scoring | None = None) -> Tensor:
        """Return logits: [N, D] -> [N, V], or [N, V'] by the ``restricted`` output layer; also [M, D] -> [M, V]."""
        return (self.output if restricted is None else restricted).logits(hidden)

    def forward(self, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        """Compute the hidden states [M, D] of all real target positions, in the order of ``batch.targets`` [M].

        ``model.scores(model(batch).hidden)`` are the logits [M, V] of the targets.
        """
        return self.taught(self.encode(batch.source, batch.source_lengths), batch, attention)

    def taught(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        """Compute the hidden states [M, D] of the positions that predict ``batch.targets``: ``decode`` without the tokens
        that each target starts with."""
        return predicting(batch, self.decode(memory, batch.whole(), attention))


@dataclass(frozen=True)
class LossReport(ShortRepr):
    """The result of a criterion for one micro-batch. Sums: the trainer divides once, over the whole update."""

    loss_sum: Tensor  # scalar with gradient
    nll_sum: Tensor  # scalar, detached: negative log-likelihood in nats, for perplexity
    denominator: Tensor  # scalar, detached: sum of the weights of tokens, or sentences for sequence-level losses
    num_tokens: Tensor  # scalar: real target tokens, eos included
    num_sentences: int
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)  # for the log: detached weighted sums, like loss_sum
    weight: Tensor | None = None  # scalar: sum of the weights of the target tokens; None: num_tokens

    @property
    def total_weight(self) -> Tensor:
        """What ``nll_sum`` is divided by for the perplexity."""
        return self.num_tokens if self.weight is None else self.weight


@runtime_checkable
class SupportsModes(Protocol):
    """An optimizer that keeps different weights for training and evaluation (schedule-free, moving average)."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


def predicting(batch: Batch, decoded: DecoderOutput) -> DecoderOutput:
    """Keep the hidden states of all real positions [.., D] that predict ``batch.targets``: [M, D]"""
    if not batch.started:
        return decoded
    return replace(decoded, hidden=decoded.hidden.index_select(0, batch.predicted()))


def real_positions(target_lengths: Tensor, longest: int) -> Tensor:
    """Return [B, T], True at the real target positions."""
    return torch.arange(longest, device=target_lengths.device)[None, :] < target_lengths[:, None]

"""The seam between models, search, criterions and the trainer. Read this file first.

Legend of every shape comment in the project:
    B sentences, K beam, N = B*K hypotheses (sentence b owns rows b*K ... b*K+K-1), S source positions, T target
    positions, M real (unpadded) target positions of a batch, D model width, H heads, V vocabulary.
Every tensor is batch-first. What crosses the seam is a tensor or a frozen dataclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from nmt.data.batch import Batch as Batch  # these three cross the seam too, so plug-ins import them from here
from nmt.data.vocabulary import Hypothesis as Hypothesis
from nmt.data.vocabulary import VocabularySizes as VocabularySizes
from nmt.layers.overriding import require_together
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
    """What the encoder leaves behind: B rows, read-only, never tiled over the beam."""


@dataclass
class DecoderState(RowTree):
    """What one decoding step hands to the next: N rows; positions are a per-row tensor.

    A step consumes its state: only the returned one is valid, so caches may be preallocated and written in place.
    ``rows`` is only called with indices that permute or repeat within a sentence, or that drop whole sentences.
    """


@dataclass(frozen=True)
class StepOutput:
    """One decoding step of N hypotheses."""

    scores: Tensor  # [N, V] logits, or log-probabilities if `normalised`
    normalised: bool
    state: DecoderState
    attention: Tensor | None = None  # [N, S], rows sum to 1 over the real source positions; when asked for

    def log_probabilities(self) -> Tensor:
        """[N, V] natural logarithms, in float32 at least."""
        scores = self.scores.to(torch.promote_types(self.scores.dtype, torch.float32))
        return scores if self.normalised else scores.log_softmax(1)


@dataclass(frozen=True)
class AttentionRequest:
    """Which attention maps a teacher-forced pass should return."""

    kinds: tuple[str, ...] = ("cross",)  # of "encoder", "decoder", "cross"


@dataclass(frozen=True)
class AttentionMaps:
    """Attention by kind, one tensor a layer: [B, H, queries, keys]; padding columns hold 0."""

    maps: Mapping[str, tuple[Tensor, ...]]


@dataclass(frozen=True)
class DecoderOutput:
    """The result of teacher forcing: hidden states instead of logits, and only of real positions."""

    hidden: Tensor  # [M, D] the real target positions, in batch order; input of the output layer
    attention: AttentionMaps | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)  # named means over this micro-batch


class Decodable(Protocol):
    """All that search needs; a model and an ensemble both satisfy it."""

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        """source [B, S] ids ending in eos, right-padded; source_lengths [B] count the eos."""

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        """The state before the first step, N = B * beam_size rows, and the memory enriched with what is computed once.

        ``vocabulary`` restricts the output to these target ids [V'], or [B, V'] to those of each sentence: scores then have
        V' columns, in this order. A row that is shorter than others ends in pads, whose scores are -inf.
        """

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        """tokens [N]: the last token of each hypothesis (bos at first). Memory keeps its B rows."""

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        """[B] the longest target (eos included) that the model can produce; None: no limit of its own."""


class Scoring(Protocol):
    """What ``step`` asks for scores: the output layer, or what ``restrict`` made of it."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, D] -> [N, V]"""


class OutputLayer(nn.Module, ABC):
    """Hidden states to scores over the vocabulary; owned by the model, used by the criterion and by ``step``."""

    product_type: torch.dtype | None = None  # what a fused loss multiplies ``linear()`` in; None: as everything else

    def __init_subclass__(cls, **options: Any) -> None:
        """Other logits need another ``restrict`` and ``linear``: inherited ones would train and translate by the old."""
        super().__init_subclass__(**options)
        why = "which compute the same in other ways; override them too (linear may return None)"
        require_together(cls, "logits", ("restrict", "linear"), why)

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""

    @abstractmethod
    def restrict(self, vocabulary: Tensor) -> Scoring:
        """The same over the given target ids only (a shortlist), [V'], or [B, V'] for each sentence."""

    @abstractmethod
    def linear(self) -> tuple[Tensor, Tensor | None] | None:
        """Weight [V, D] and bias [V] for a fused loss; None: this head is not one matrix."""


class EncoderDecoder(nn.Module, ABC):
    """A model: a ``Decodable`` that can also be trained by teacher forcing.

    Nothing is cached on modules between calls. ``step`` over t must equal ``decode`` at t; ``nmt.testing`` checks this
    and the other laws for any registered model.
    """

    output: OutputLayer
    width: int  # the size that the `noam` schedule scales with (d_model; hidden size of a recurrent model)
    shapes_depend_on_tokens = False  # True: how large operands are depends on what the tokens are, as with experts

    @abstractmethod
    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory: ...

    @abstractmethod
    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        """Teacher forcing: hidden states of all real target positions."""

    @abstractmethod
    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[Memory, DecoderState]: ...

    @abstractmethod
    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput: ...

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return None

    def max_source_length(self) -> int | None:
        """The longest source (eos included) that the model can read; None: no limit of its own."""
        return None

    def scores(self, hidden: Tensor, restricted: Scoring | None = None) -> Tensor:
        """[N, D] -> [N, V], or [N, V'] by a ``restricted`` output layer."""
        return (self.output if restricted is None else restricted).logits(hidden)

    def forward(self, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        return self.decode(self.encode(batch.source, batch.source_lengths), batch, attention)


@dataclass(frozen=True)
class LossReport:
    """What a criterion says of one micro-batch. Sums, not means: the trainer divides once, over the whole update."""

    loss_sum: Tensor  # scalar with gradient
    nll_sum: Tensor  # scalar, detached: negative log-likelihood in nats, for perplexity
    denominator: Tensor  # scalar, detached: what loss_sum is to be divided by (tokens; sentences if sequence-level)
    num_tokens: Tensor  # scalar: real target tokens, eos included
    num_sentences: int
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)  # detached, weighted sums like loss_sum, for the log


@runtime_checkable
class SupportsModes(Protocol):
    """An optimizer that keeps different weights for training and evaluation (schedule-free, moving average)."""

    def train(self) -> None: ...

    def eval(self) -> None: ...


def real_positions(target_lengths: Tensor, longest: int) -> Tensor:
    """[B, T] True at the real target positions."""
    return torch.arange(longest, device=target_lengths.device)[None, :] < target_lengths[:, None]

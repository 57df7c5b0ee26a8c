"""What models have in common around their decoders.

Shapes: B sentences, N hypotheses, S source positions, T target positions, M real target positions, D width of the states.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import Tensor

from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    Scoring,
    StepOutput,
)
from nmt.layers.padding import real_rows

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


# States [N, T, D], by layer the weights [B, N/B * T, S] of one head if there is attention, and the state after the tokens.
ReadOn = tuple[Tensor, Sequence[Tensor], DecoderState]


class Recurrent(EncoderDecoder, ABC):
    """A model whose decoder reads on from a state: a whole target by teacher forcing, or one piece in a step.

    It gets the kind of memory that its ``encode`` returns, and the kind of state that its ``begin`` returns.
    """

    @abstractmethod
    def begin(self, memory: Any, beam_size: int) -> DecoderState:
        """The state before anything is read, of so many hypotheses a sentence."""

    @abstractmethod
    def read(self, tokens: Tensor, memory: Any, state: Any) -> ReadOn:
        """Tokens [N, T] after a state, either N = B (teacher forcing) or T = 1 (a step)."""

    def read_out(self, states: Tensor) -> Tensor:
        """What the output layer sees: [..., D] -> [..., D]"""
        return states

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        states, weights, _ = self.read(batch.target_in, memory, self.begin(memory, 1))
        return decoded(states, batch, attention, weights, read_out=self.read_out)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ScoredMemory)
        return memory.scored_by(self.output, vocabulary), self.begin(memory, beam_size)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ScoredMemory)
        states, weights, state = self.read(tokens[:, None], memory, state)
        scores = self.scores(self.read_out(states[:, 0]), memory.output)
        return StepOutput(scores, False, state, weights[-1].flatten(0, 1) if attention and weights else None)

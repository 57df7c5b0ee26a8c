"""The engine in C for searches that take their steps in torch.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, V pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocabulary import Ints
from nmt.interface import DecoderState, Memory, StepOutput

if TYPE_CHECKING:
    from nmt.engines.native import NativeDecoding, NativeEngine


@dataclass
class Sources(Memory):
    """What is to be translated. It is encoded when decoding begins."""

    ids: Tensor  # [B, S]
    lengths: Tensor  # [B]


@dataclass
class NativeState(DecoderState):
    """The decoding of a batch, and what is to become of its hypotheses before the next step."""

    decoding: NativeDecoding
    parents: Ints  # [B, K]
    staying: Ints  # positions in B

    def rows(self, index: Tensor) -> NativeState:
        """``index`` permutes or repeats within a sentence, or leaves whole sentences out."""
        there = self.parents[self.staying]  # [B', K] what a row of now continues
        sentences, slots = np.divmod(index.numpy().reshape(-1, there.shape[1]), there.shape[1])
        parents = self.parents.copy()
        staying = self.staying[sentences[:, 0]]
        parents[staying] = there[sentences, slots]
        return NativeState(self.decoding, parents, staying)


class NativeDecodable:
    """A ``Decodable``: a state is consumed by its step, and there is one decoding at a time for each."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        return Sources(source, source_lengths)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, Sources)
        lengths = memory.lengths.tolist()
        sources = [row[:length] for row, length in zip(memory.ids.numpy(), lengths)]
        lists = None if vocabulary is None else _lists(vocabulary, len(sources))
        decoding = self._engine.begin(sources, beam_size, lists)
        parents = np.tile(np.arange(beam_size), (len(sources), 1))
        return memory, NativeState(decoding, parents, np.arange(len(sources)))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(state, NativeState)
        decoding = state.decoding
        decoding.follow(state.parents, state.staying)
        weights = decoding.step_by_ids(np.ascontiguousarray(tokens.numpy()), attention)
        parents = np.tile(np.arange(decoding.beam), (decoding.sentences, 1))
        return StepOutput(
            torch.from_numpy(decoding.scores.copy()),
            False,
            NativeState(decoding, parents, np.arange(decoding.sentences)),
            None if weights is None else torch.from_numpy(weights),
        )

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limits = self._engine.longest_targets(source_lengths.numpy())
        return None if limits is None else torch.from_numpy(limits)


def _lists(vocabulary: Tensor, sentences: int) -> list[Ints]:
    """[V], or [B, V] in which pads fill up the rows, -> the list of each sentence."""
    if vocabulary.dim() == 1:
        return [vocabulary.numpy()] * sentences
    rows = vocabulary.numpy()
    real = rows != 0  # pads
    real[:, 0] = True  # the pad itself may stand first
    return [row[kept] for row, kept in zip(rows, real)]

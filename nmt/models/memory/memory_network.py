"""An end-to-end memory network over the source, queried by a decoder LSTM: Sukhbaatar et al. 2015, arXiv:1503.08895.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T queries (target positions, or the K hypotheses of a
sentence), E target embedding, H hidden size of the LSTM, D slot size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from nmt.errors import DataError
from nmt.interface import Memory, VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.padding import padding_bias
from nmt.models import models
from nmt.models.memory.config import MemoryNetworkConfig, SlotPositions
from nmt.models.output_layers import LinearOutput, ScoredMemory
from nmt.models.recurrent.attentive_recurrent import ReadResult, Recurrent, StackState
from nmt.models.recurrent.layers import LSTMLayer, RecurrentStack

Distances = Callable[[Tensor, int], Tensor]  # lengths [B], longest -> [B, longest], arbitrary at padding


def from_end(lengths: Tensor, longest: int) -> Tensor:
    """Return the distance of each token from the last token of its sentence: section 4.1."""
    return (lengths[:, None] - 1 - torch.arange(longest, device=lengths.device)).clamp(min=0)


def from_start(lengths: Tensor, longest: int) -> Tensor:
    """Return the distance of each token from the first token."""
    return torch.arange(longest, device=lengths.device).expand(len(lengths), -1)


class Slots(nn.Module):
    """A x_i + T(i): the sum of a vector for each token (section 2.1) and for its position (section 4.1).

    Each of the ``distances`` has a table of position vectors. Tables are initialized from N(0, ``std``^2).
    """

    def __init__(
        self, vocabulary_size: int, size: int, distances: Sequence[Distances], max_positions: int, std: float
    ) -> None:
        super().__init__()
        self.content = nn.Embedding(vocabulary_size, size)
        self.places = nn.ModuleList(nn.Embedding(max_positions, size) for _ in distances)
        self.distances = tuple(distances)
        for table in (self.content, *self.places):
            nn.init.normal_(cast(nn.Embedding, table).weight, std=std)

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """[B, S] -> [B, S, D]"""
        slots = self.content(source)
        for table, distances in zip(self.places, self.distances):
            slots = slots + table(distances(lengths, source.size(1)))
        return slots


def hops(query: Tensor, slots: Sequence[Tensor], bias: Tensor) -> tuple[Tensor, list[Tensor]]:
    """p^k = softmax(u^k . m^k), o^k = sum_i p_i^k c_i^k, u^{k+1} = u^k + o^k: equations 1, 2 and 4.

    u^1 [B, T, D] -> u^{K+1} [B, T, D], and the weights [B, T, S] of each hop; bias [B, 1, S] -inf at padding. K hops read
    K + 1 sets of slots: the values of a hop (c^k) are the keys of the next (m^{k+1}). This is the paper's "adjacent" tying,
    A^{k+1} = C^k, also for the temporal encodings: section 2.2.
    """
    weights = []
    for keys, values in pairwise(slots):
        weights.append(torch.softmax(query @ keys.transpose(1, 2) + bias, dim=-1))
        query = query + weights[-1] @ values
    return query, weights


DISTANCES: dict[SlotPositions, tuple[Distances, ...]] = {
    SlotPositions.end: (from_end,),
    SlotPositions.start: (from_start,),
    SlotPositions.both: (from_start, from_end),
}


@dataclass
class SourceSlots(ScoredMemory):
    """K + 1 sets of slots, with a slot for each source token."""

    slots: tuple[Tensor, ...]  # K + 1 times [B, S, D]
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding


@models.register("memory_network", MemoryNetworkConfig)
class MemoryNetwork(Recurrent):
    """Source tokens are slots of a memory; each output reads the memory several times.

    The paper answers one question. Here each target position has the query B h_t, with the state h_t of an LSTM over the
    target prefix; the answer is W u^{K+1}, equation 3. The paper ties W to the last C, which is impossible with a separate
    target vocabulary.
    """

    def __init__(self, config: MemoryNetworkConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        size = config.slot_size
        self.width = size
        self.longest_source = config.max_positions
        self.slots = nn.ModuleList(
            Slots(sizes.source, size, DISTANCES[config.places], config.max_positions, config.init_std)
            for _ in range(config.num_hops + 1)
        )
        self.target_embedding = Embedding(sizes.target, config.embedding_size)
        inputs = [config.embedding_size, *[config.hidden_size] * (config.num_layers - 1)]
        self.decoder = RecurrentStack([LSTMLayer(size, config.hidden_size) for size in inputs], config.dropout)
        self.question = nn.Linear(config.hidden_size, size, bias=False)
        self.dropout = Dropout(config.dropout)
        self.output = LinearOutput(torch.empty(sizes.target, size).normal_(std=config.init_std))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        if source.size(1) > self.longest_source:
            raise DataError(
                f"a source sentence has {source.size(1)} tokens, but the memory has {self.longest_source} slot positions; "
                f"raise model.max_positions, or filter such sentences (--max-length {self.longest_source - 1} when "
                f"preprocessing)"
            )
        slots = tuple(slots(source, source_lengths) for slots in self.slots)
        bias = padding_bias(source_lengths, source.size(1), slots[0].dtype)[:, None]  # [B, 1, S]
        return SourceSlots(slots, bias)

    def begin(self, memory: SourceSlots, beam_size: int) -> StackState:
        """Return zero states: the LSTM reads the source only through the hops."""
        rows = memory.bias.size(0) * beam_size
        return StackState(tuple(layer.zeros(rows, memory.bias) for layer in self.decoder.layers))

    def read(self, tokens: Tensor, memory: SourceSlots, state: StackState) -> ReadResult:
        """Read tokens; the weights of each hop count as a layer's."""
        states, layers = self.decoder(self.dropout(self.target_embedding(tokens)), state.layers)  # [N, T, H]
        by_sentence = states.reshape(memory.bias.size(0), -1, states.size(-1))  # [B, T or K, H]
        questions = self.dropout(self.question(by_sentence))
        answers, weights = hops(questions, memory.slots, memory.bias)
        return self.dropout(answers).view(*tokens.shape, -1), weights, StackState(layers)

    def max_source_length(self) -> int | None:
        return self.longest_source

"""A plugin in one file: an encoder that ignores word order, and a GRU decoder.

The encoder is the mean of the source embeddings, so it cannot tell "dog bites man" from "man bites dog". As a
baseline, it shows how much a task needs word order. Importing this package registers the model `bag_of_words`.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
D model width, L layers of the decoder, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config.checks import require_positive
from nmt.config.option import option
from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    StepOutput,
    VocabularySizes,
    real_positions,
)
from nmt.models import models
from nmt.models.output_layers import LinearOutput


@dataclass
class BagOfWordsConfig:
    """Sizes of the model."""

    d_model: int = option(256, help="width of embeddings and states")
    num_layers: int = option(1, help="layers of the GRU", flag="--gru-layers")
    dropout: float = option(0.1, help="dropout of embeddings and states", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", d_model=self.d_model, num_layers=self.num_layers)

    def shrink(self) -> BagOfWordsConfig:
        return replace(self, d_model=16, num_layers=min(self.num_layers, 2))


@dataclass
class Bag(Memory):
    """The encoder output."""

    mean: Tensor  # [B, D]
    weights: Tensor  # [B, S] 1 / length at real positions: a mean is a uniform attention
    output: OutputLayer | None = None  # over the shortlist, if there is one


@dataclass
class GRUState(DecoderState):
    """The state between two steps of the decoder."""

    hidden: Tensor  # [N, L, D]


@models.register("bag_of_words", BagOfWordsConfig)
class BagOfWords(EncoderDecoder):
    """A GRU decoder that reads the mean of the source embeddings at every step."""

    def __init__(self, config: BagOfWordsConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.d_model
        self.layers = config.num_layers
        self.source_embedding = nn.Embedding(sizes.source, self.width)
        self.target_embedding = nn.Embedding(sizes.target, self.width)
        self.dropout = nn.Dropout(config.dropout)
        self.bridge = nn.Linear(self.width, self.layers * self.width)
        self.gru = nn.GRU(2 * self.width, self.width, self.layers, batch_first=True)
        self.output = LinearOutput(torch.randn(sizes.target, self.width) * self.width**-0.5, torch.zeros(sizes.target))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Bag:
        real = real_positions(source_lengths, source.size(1))
        weights = real / source_lengths[:, None]  # [B, S]
        embedded = self.dropout(self.source_embedding(source))  # [B, S, D]
        return Bag((weights[:, :, None] * embedded).sum(1), weights)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, Bag)
        longest = batch.target_in.size(1)
        hidden, _ = self._run(batch.target_in, memory.mean, self._first(memory.mean))
        maps = None
        if attention is not None and "cross" in attention.kinds:
            maps = AttentionMaps({"cross": (memory.weights[:, None, None].expand(-1, 1, longest, -1),)})
        return DecoderOutput(hidden[real_positions(batch.target_lengths, longest)], maps)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, Bag)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        return replace(memory, output=output), GRUState(self._first(memory.mean).repeat_interleave(beam_size, dim=0))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, Bag) and isinstance(state, GRUState) and memory.output is not None
        beam_size = tokens.size(0) // memory.mean.size(0)
        mean = memory.mean.repeat_interleave(beam_size, dim=0)  # [N, D]
        hidden, last = self._run(tokens[:, None], mean, state.hidden)
        weights = memory.weights.repeat_interleave(beam_size, dim=0) if attention else None
        return StepOutput(memory.output.logits(hidden[:, 0]), False, GRUState(last), weights)

    def _first(self, mean: Tensor) -> Tensor:
        """The GRU's state before the first token. [B, D] -> [B, L, D]"""
        return torch.tanh(self.bridge(mean)).view(-1, self.layers, self.width)

    def _run(self, tokens: Tensor, mean: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [N, T], means [N, D] and states [N, L, D] -> outputs [N, T, D] and the last states [N, L, D]."""
        embedded = self.dropout(self.target_embedding(tokens))
        inputs = torch.cat([embedded, mean[:, None].expand_as(embedded)], dim=-1)
        outputs, last = self.gru(inputs, hidden.transpose(0, 1).contiguous())
        return self.dropout(outputs), last.transpose(0, 1)

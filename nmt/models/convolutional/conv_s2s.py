"""ConvS2S, convolutions with attention in every decoder layer: Gehring et al. 2017, arXiv:1705.03122.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
C channels, E embedding, D width of the output layer, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

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
    VocabularySizes,
    real_positions,
)
from nmt.layers.embeddings import Borrowed, Embedding
from nmt.layers.input_layer import InputLayer
from nmt.layers.padding import padding_bias, real_rows
from nmt.layers.positions import LearnedPositions
from nmt.layers.sharing import shares_embeddings
from nmt.layers.weight_norm import NormalisedLinear
from nmt.models import models
from nmt.models.convolutional.conv_s2s_config import ConvS2SConfig, Group
from nmt.models.convolutional.gated_convolution import (
    HALF,
    AttendedSource,
    GatedDecoder,
    GatedEncoder,
    GatedShape,
    linear,
    scale_gradient,
)
from nmt.models.output_layers import TiedOutput, restricted

EMBEDDING_STD = 0.1  # of embeddings and positions: section 3.5


def _shapes(groups: list[Group]) -> list[GatedShape]:
    """By layer. The first one reads what the embeddings are mapped to: as many channels as it has itself."""
    layers = [group for group in groups for _ in range(group.count)]
    inputs = [layers[0].channels, *(layer.channels for layer in layers)]
    return [GatedShape(before, layer.channels, layer.kernel) for before, layer in zip(inputs, layers)]


class NormalisedOutput(OutputLayer):
    """Scores by a weight-normalised linear map."""

    def __init__(self, projection: NormalisedLinear) -> None:
        super().__init__()
        self.projection = projection

    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.projection(hidden)
        return scores

    def restrict(self, vocabulary: Tensor) -> Scoring:
        return restricted(self.projection.weight, self.projection.bias, vocabulary)

    def linear(self) -> tuple[Tensor, Tensor | None]:
        return self.projection.weight, self.projection.bias


@dataclass
class ConvS2SMemory(Memory):
    """What the decoder attends to."""

    source: AttendedSource
    output: Scoring | None = field(default=None, kw_only=True)  # over the short list, if there is one


@dataclass
class ConvS2SState(DecoderState):
    """How far each hypothesis is, and the last inputs of the convolutions."""

    positions: Tensor  # [N] of the next token
    caches: tuple[Tensor, ...]  # by layer [N, k - 1, C]
    length: int = 0  # no row's position is beyond


@models.register("conv_s2s", ConvS2SConfig)
class ConvS2S(EncoderDecoder):
    """Gated convolutions, multi-step attention and learned positions."""

    def __init__(self, config: ConvS2SConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        shared = shares_embeddings(config.share_all_embeddings, sizes.shared)
        source = _embedding(sizes.source, config)
        target = Borrowed(source) if shared else _embedding(sizes.target, config)
        self.width = config.embedding_size
        self.source_input = InputLayer(source, _positions(config), config.dropout)
        self.target_input = InputLayer(target, _positions(config), config.dropout)
        self.encoder = GatedEncoder(_shapes(config.encoder_groups()), config.embedding_size, config.dropout)
        self.decoder = GatedDecoder(
            _shapes(config.decoder_groups()), config.embedding_size, config.output_size, config.dropout
        )
        self.output = TiedOutput(source) if shared else _output(sizes.target, config)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        self.source_input.positions.check_length(source.size(1), "source")
        embedded = self.source_input(source)
        real = real_positions(source_lengths, source.size(1))  # [B, S]
        keys = self.encoder(embedded, ~real[:, :, None])
        # Each attention sends its gradient here: divided by their number (section 3.4), and by two as in the authors' code,
        # since keys and values are both made of it. The embeddings below are left out.
        keys = scale_gradient(keys, 1 / (2 * len(self.decoder.layers)))
        # A weighted sum of s vectors is scaled by s sqrt(1 / s) (section 3.4), s being a sentence's own length. Scaled
        # here, once, and not each context.
        values = (keys + embedded) * (HALF * source_lengths.to(embedded.dtype).sqrt()[:, None, None])
        bias = padding_bias(source_lengths, source.size(1), keys.dtype)[:, None]  # [B, 1, S]
        return ConvS2SMemory(AttendedSource(keys, values, bias))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, ConvS2SMemory)
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        record: list[Tensor] = []  # by layer [B, T, S]
        x = self.decoder(self.target_input(batch.target_in), memory.source, record)
        hidden = self.decoder.read_out(real_rows(x, batch.target_lengths, batch.target_offsets, batch.num_tokens))
        if attention is None:
            return DecoderOutput(hidden)
        maps = {"cross": tuple(weights[:, None] for weights in record)} if "cross" in attention.kinds else {}
        return DecoderOutput(hidden, AttentionMaps(maps))

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ConvS2SMemory)
        keys = memory.source.keys
        rows = keys.size(0) * beam_size
        restricted = None if vocabulary is None else self.output.restrict(vocabulary)
        positions = torch.zeros(rows, dtype=torch.long, device=keys.device)
        state = ConvS2SState(positions, self.decoder.empty_caches(rows, like=keys))
        return replace(memory, output=restricted), state

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ConvS2SMemory) and isinstance(state, ConvS2SState)
        record: list[Tensor] = []  # by layer [B, K, S]
        embedded = self.target_input.at(tokens, state.positions, state.length + 1)[:, None]  # [N, 1, E]
        x, caches = self.decoder.step(embedded, state.caches, memory.source, record)
        scores = self.scores(self.decoder.read_out(x[:, 0]), memory.output)
        weights = torch.stack(record).mean(0).flatten(0, 1) if attention else None  # [N, S] the mean of all layers
        return StepOutput(scores, False, ConvS2SState(state.positions + 1, caches, state.length + 1), weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limit = self.target_input.positions.limit
        return None if limit is None else torch.full_like(source_lengths, limit)

    def max_source_length(self) -> int | None:
        return self.source_input.positions.limit


def _embedding(vocabulary_size: int, config: ConvS2SConfig) -> Embedding:
    embedding = Embedding(vocabulary_size, config.embedding_size)
    nn.init.normal_(embedding.weight, std=EMBEDDING_STD)
    return embedding


def _positions(config: ConvS2SConfig) -> LearnedPositions:
    positions = LearnedPositions(config.embedding_size, config.max_positions)
    nn.init.normal_(positions.weight, std=EMBEDDING_STD)
    return positions


def _output(vocabulary_size: int, config: ConvS2SConfig) -> OutputLayer:
    return NormalisedOutput(linear(config.output_size, vocabulary_size, config.dropout))

"""ConvS2S, convolutions with attention in every decoder layer: Gehring et al. 2017, arXiv:1705.03122.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
C channels, E embedding, D width of the output layer, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.interface import (
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    StepOutput,
    VocabularySizes,
    real_positions,
)
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Borrowed, Embedding, InputLayer, LearnedPositions
from nmt.layers.linear import NormalizedLinear
from nmt.layers.padding import padding_bias
from nmt.layers.recurrent_attention import DotAttention
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.config import shares_embeddings
from nmt.models.convolutional.config import ConvS2SConfig, Group
from nmt.models.convolutional.convolution import CausalConvolution, ConvolutionState, SameConvolution
from nmt.models.output_layers import MatrixOutput, ScoredMemory, TiedOutput, decoded

HALF = math.sqrt(0.5)  # keeps the variance of a sum of two terms (section 3.4)


@dataclass(frozen=True)
class GatedShape:
    """A layer's sizes."""

    inputs: int
    channels: int
    kernel: int


def linear(inputs: int, outputs: int, dropout: float = 0.0) -> NormalizedLinear:
    """Build a linear map with weights from N(0, p / n) for n inputs, p = 1 - ``dropout`` (section 3.5)."""
    return NormalizedLinear(inputs, outputs, std=math.sqrt((1 - dropout) / inputs))


def gate_input(shape: GatedShape, dropout: float) -> NormalizedLinear:
    """Build the linear map before a gated linear unit, from N(0, 4 p / n): the unit quarters the variance (section 3.5)."""
    inputs = shape.kernel * shape.inputs
    return NormalizedLinear(inputs, 2 * shape.channels, std=math.sqrt(4 * (1 - dropout) / inputs))


def shortcut(shape: GatedShape) -> nn.Module:
    """Build the residual connection of a layer: a projection if the widths differ (section 3.2)."""
    return nn.Identity() if shape.inputs == shape.channels else linear(shape.inputs, shape.channels)


class GatedEncoderLayer(nn.Module):
    """(GLU(convolution(dropout(x))) + x) sqrt(0.5): sections 3.2 and 3.4."""

    def __init__(self, shape: GatedShape, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = SameConvolution(gate_input(shape, dropout), shape.kernel)
        self.shortcut = shortcut(shape)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """[B, S, C] -> [B, S, C']; ``padding`` [B, S, 1]"""
        gated = F.glu(self.convolution(self.dropout(x), padding), dim=-1)
        return (gated + self.shortcut(x)) * HALF


@dataclass
class ConvS2SMemory(ScoredMemory):
    """The keys and values of all decoder layers."""

    keys: Tensor  # [B, S, E] the encoder output z
    values: Tensor  # [B, S, E] z plus the embedding, scaled
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding


class GatedDecoderLayer(nn.Module):
    """A causal gated convolution, attention over the source, and a residual connection around both.

    h = GLU(convolution(dropout(x))); d = (W_d h + b_d + g) sqrt(0.5), with the embedding g of the last target token;
    c = attention(d); h' = (W_c c + b_c + h) sqrt(0.5); output (h' + x) sqrt(0.5): section 3.3, equations 1 and 2, with
    the factors of section 3.4.
    """

    def __init__(self, shape: GatedShape, embedding_size: int, dropout: float) -> None:
        super().__init__()
        self.inputs = shape.inputs
        self.dropout = Dropout(dropout)
        self.convolution = CausalConvolution(gate_input(shape, dropout), shape.kernel)
        self.query = linear(shape.channels, embedding_size)
        self.attention = DotAttention(embedding_size)
        self.context = linear(embedding_size, shape.channels)
        self.shortcut = shortcut(shape)

    def forward(
        self, x: Tensor, embedded: Tensor, source: ConvS2SMemory, before: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """x [N, T, C] after the inputs ``before``, embedded [N, T, E] -> [N, T, C'], the inputs before the next position,
        and the weights [B, N/B * T, S]"""
        convolved, after = self.convolution(self.dropout(x), before)
        gated = F.glu(convolved, dim=-1)
        queries = (self.query(gated) + embedded) * HALF
        # The K hypotheses of a sentence are K queries, so the memory keeps its B rows.
        by_sentence = queries.view(source.keys.size(0), -1, queries.size(-1))  # [B, T or K, E]
        contexts, weights = self.attention(by_sentence, source.keys, source.values, source.bias)
        attended = (self.context(contexts.view_as(queries)) + gated) * HALF
        return (attended + self.shortcut(x)) * HALF, after, weights


class GatedEncoder(nn.Module):
    """A stack of layers between two linear maps, from and to the width of the embeddings."""

    def __init__(self, shapes: Sequence[GatedShape], embedding_size: int, dropout: float) -> None:
        super().__init__()
        self.enter = linear(embedding_size, shapes[0].inputs, dropout)
        self.layers = Stack(GatedEncoderLayer(shape, dropout) for shape in shapes)
        self.leave = linear(shapes[-1].channels, embedding_size)

    def forward(self, embedded: Tensor, padding: Tensor) -> Tensor:
        """[B, S, E] -> [B, S, E]; ``padding`` [B, S, 1]"""
        x = self.enter(embedded)
        for layer in self.layers:
            x = layer(x, padding)
        return self.leave(x)


class GatedDecoder(nn.Module):
    """A stack of layers, each with a separate attention."""

    def __init__(self, shapes: Sequence[GatedShape], embedding_size: int, output_size: int, dropout: float) -> None:
        super().__init__()
        self.enter = linear(embedding_size, shapes[0].inputs, dropout)
        self.layers = Stack(GatedDecoderLayer(shape, embedding_size, dropout) for shape in shapes)
        self.leave = linear(shapes[-1].channels, output_size)
        self.dropout = Dropout(dropout)

    def forward(
        self, embedded: Tensor, source: ConvS2SMemory, caches: Sequence[Tensor | None]
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor]]:
        """[N, T, E] -> [N, T, C]; by layer the inputs before the next position, and the weights [B, N/B * T, S]"""
        x, after, record = self.enter(embedded), [], []
        for layer, before in zip(self.layers, caches):
            x, cache, weights = layer(x, embedded, source, before)
            after.append(cache)
            record.append(weights)
        return x, tuple(after), record

    def read_out(self, x: Tensor) -> Tensor:
        """The input of the output layer: [..., C] -> [..., D]"""
        return self.dropout(self.leave(x))


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Return x; multiply its gradient by ``factor``."""
    same = x.view_as(x)
    if same.requires_grad:
        same.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]
    return same


EMBEDDING_STD = 0.1  # of embeddings and positions: section 3.5


def _shapes(groups: list[Group]) -> list[GatedShape]:
    """Return the sizes of each layer. The embeddings are projected to the channels of the first layer."""
    layers = [group for group in groups for _ in range(group.count)]
    inputs = [layers[0].channels, *(layer.channels for layer in layers)]
    return [GatedShape(before, layer.channels, layer.kernel) for before, layer in zip(inputs, layers)]


class NormalizedOutput(MatrixOutput):
    """Scores by a weight-normalized linear map."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.projection = linear(inputs, outputs, dropout)

    def matrix(self) -> tuple[Tensor, Tensor | None]:
        return self.projection.weight, self.projection.bias


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
        self.output = (
            TiedOutput(source) if shared else NormalizedOutput(config.output_size, sizes.target, config.dropout)
        )

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        self.source_input.positions.check_length(source.size(1), "source")
        embedded = self.source_input(source)
        real = real_positions(source_lengths, source.size(1))  # [B, S]
        keys = self.encoder(embedded, ~real[:, :, None])
        # The gradient is divided by the number of attentions (section 3.4), and by two as in the authors' code, since keys
        # and values depend on it. The gradient to the embeddings is not scaled.
        keys = scale_gradient(keys, 1 / (2 * len(self.decoder.layers)))
        # A weighted sum of s vectors is scaled by s sqrt(1 / s), for sentence length s (section 3.4). Scaling the values
        # once has the same effect as scaling each context.
        values = (keys + embedded) * (HALF * source_lengths.to(embedded.dtype).sqrt()[:, None, None])
        bias = padding_bias(source_lengths, source.size(1), keys.dtype)[:, None]  # [B, 1, S]
        return ConvS2SMemory(keys, values, bias)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, ConvS2SMemory)
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        x, _, record = self.decoder(self.target_input(batch.target_in), memory, [None] * len(self.decoder.layers))
        return decoded(x, batch, attention, record, read_out=self.decoder.read_out)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ConvS2SMemory)
        rows, like = memory.keys.size(0) * beam_size, memory.keys
        caches = tuple(layer.convolution.empty_cache(rows, layer.inputs, like) for layer in self.decoder.layers)
        positions = torch.zeros(rows, dtype=torch.long, device=like.device)
        return memory.scored_by(self.output, vocabulary), ConvolutionState(positions, caches)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ConvS2SMemory) and isinstance(state, ConvolutionState)
        embedded = self.target_input.at(tokens, state.positions, state.length + 1)[:, None]  # [N, 1, E]
        x, caches, record = self.decoder(embedded, memory, state.caches)
        scores = self.scores(self.decoder.read_out(x[:, 0]), memory.output)
        weights = torch.stack(record).mean(0).flatten(0, 1) if attention else None  # [N, S] the mean of all layers
        return StepOutput(scores, False, ConvolutionState(state.positions + 1, caches, state.length + 1), weights)

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

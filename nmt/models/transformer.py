"""The Transformer of "Attention Is All You Need": Vaswani et al. 2017, arXiv:1706.03762.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
D model width, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

import torch
from torch import Tensor, nn

from nmt.config.option import FlagKind, option
from nmt.config.sections import require_positive
from nmt.errors import DataError, UsageError
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
from nmt.models.output_layers import LinearOutput, TiedOutput
from nmt.modules.attention import HeadSizes, KeyValueCache
from nmt.modules.embeddings import Borrowed, Embedding
from nmt.modules.padding import causal_bias, padding_bias, real_rows
from nmt.modules.positions import LearnedPositions, SinusoidalPositions
from nmt.modules.residual import PostNorm, PreNorm
from nmt.modules.transformer_layers import DecoderLayer, EncoderLayer, InputLayer, LayerShape, Record

INITIAL_CAPACITY = 16  # positions that a fresh cache holds; it doubles when full


class PositionKind(Enum):
    """How a position enters the model."""

    sinusoidal = "sinusoidal"
    learned = "learned"


class NormOrder(Enum):
    """Where the layer norm of a sublayer stands."""

    post = "post"
    pre = "pre"


@dataclass
class TransformerConfig:
    """Every knob of the paper's Table 3; the defaults are its base model."""

    encoder_layers: int = option(6, help="encoder layers", flag="--encoder-layers")
    decoder_layers: int = option(6, help="decoder layers", flag="--decoder-layers")
    d_model: int = option(512, help="width of the residual stream")
    d_ff: int = option(2048, help="inner width of the feed-forward networks")
    num_heads: int = option(8, help="attention heads")
    d_k: int | None = option(None, help="width of a head's queries and keys; null: d_model / num_heads")
    d_v: int | None = option(None, help="width of a head's values; null: d_model / num_heads")
    dropout: float = option(0.1, help="dropout of each sublayer's output and of the embeddings", flag="--dropout")
    attention_dropout: float = option(0.0, help="dropout of the attention weights", flag="--attention-dropout")
    activation_dropout: float = option(
        0.0, help="dropout inside the feed-forward networks", flag="--activation-dropout"
    )
    positions: PositionKind = option(PositionKind.sinusoidal, help="sinusoidal or learned")
    max_positions: int = option(1024, help="longest sentence of learned positions, in pieces")
    share_all_embeddings: bool | None = option(
        None,
        help="one matrix for source, target and output; null: if the vocabulary is joint",
        flag="--share-all-embeddings",
        kind=FlagKind.switch,
    )
    share_decoder_embeddings: bool = option(
        True, help="one matrix for target and output", flag="--share-decoder-input-output-embed"
    )
    norm: NormOrder = option(NormOrder.post, help="layer norm after (post, the paper) or before (pre) each sublayer")
    attention_bias: bool = option(False, help="biases in the attention projections (the paper has none)")

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", d_model=self.d_model, d_ff=self.d_ff, num_heads=self.num_heads)
        require_positive("model", d_k=self.d_k, d_v=self.d_v, max_positions=self.max_positions)
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise UsageError(f"model.{name}={getattr(self, name)} must be at least 0 and less than 1")
        if self.d_model % self.num_heads and None in (self.d_k, self.d_v):
            raise UsageError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}; set model.d_k and model.d_v "
                f"to choose head widths freely"
            )
        if self.d_model % 2 and self.positions is PositionKind.sinusoidal:
            raise UsageError(
                f"d_model={self.d_model} is odd, and sinusoids come in pairs; use an even model.d_model or "
                f"model.positions=learned"
            )

    def shrink(self) -> TransformerConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 2),
            decoder_layers=min(self.decoder_layers, 2),
            d_model=16,
            d_ff=24,
            num_heads=min(self.num_heads, 2),
            d_k=self.d_k and 5,
            d_v=self.d_v and 7,
            max_positions=min(self.max_positions, 64),
        )

    def head_sizes(self) -> HeadSizes:
        even = self.d_model // self.num_heads
        return HeadSizes(self.d_model, self.num_heads, self.d_k or even, self.d_v or even)

    def layer_shape(self) -> LayerShape:
        return LayerShape(
            heads=self.head_sizes(),
            d_ff=self.d_ff,
            residual=PreNorm if self.norm is NormOrder.pre else PostNorm,
            final_norm=self.norm is NormOrder.pre,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            activation_dropout=self.activation_dropout,
            attention_bias=self.attention_bias,
        )

    def shares_all(self, sizes: VocabularySizes) -> bool:
        """Whether source, target and output use one matrix."""
        if self.share_all_embeddings and not sizes.shared:
            raise UsageError(
                "model.share_all_embeddings needs one vocabulary for both languages; preprocess with "
                "--joined-dictionary, or leave it out (--share-decoder-input-output-embed still works)"
            )
        return sizes.shared if self.share_all_embeddings is None else self.share_all_embeddings


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm stacks end in a norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        shape = config.layer_shape()
        self.layers = nn.ModuleList(EncoderLayer(shape) for _ in range(config.encoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if shape.final_norm else nn.Identity()

    def forward(self, x: Tensor, bias: Tensor, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        for layer in self.layers:
            x = layer(x, bias, record)
        normed: Tensor = self.norm(x)
        return normed


Projected = tuple[tuple[Tensor, Tensor], ...]  # by layer: keys [B, H, S, d_k] and values [B, H, S, d_v] of the memory


class Decoder(nn.Module):
    """A stack of decoder layers; pre-norm stacks end in a norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        shape = config.layer_shape()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(config.d_model) if shape.final_norm else nn.Identity()

    def _stack(self) -> Iterator[DecoderLayer]:
        return iter(cast(Iterable[DecoderLayer], self.layers))

    def project(self, states: Tensor) -> Projected:
        """The keys and values that each layer reads of the memory's states [B, S, D]."""
        return tuple(layer.cross_attention.project(states) for layer in self._stack())

    def empty_caches(self, rows: int, like: Tensor) -> tuple[KeyValueCache, ...]:
        return tuple(layer.self_attention.empty_cache(rows, INITIAL_CAPACITY, like) for layer in self._stack())

    def forward(self, x: Tensor, projected: Projected, bias: Tensor, record: Record) -> Tensor:
        """All positions at once, [B, T, D] -> [B, T, D]."""
        causal = causal_bias(x.size(1), x.dtype, x.device)
        for layer, memory in zip(self._stack(), projected):
            x = layer(x, causal, memory, bias, record)
        normed: Tensor = self.norm(x)
        return normed

    def step(
        self, x: Tensor, state: TransformerState, projected: Projected, bias: Tensor, record: Record
    ) -> tuple[Tensor, tuple[KeyValueCache, ...]]:
        """One position, [N, 1, D] -> [N, 1, D], and the caches with that position in them."""
        caches: list[KeyValueCache] = []
        unwritten = padding_bias(state.positions + 1, state.length + 1, x.dtype)[:, None, None]  # [N, 1, 1, length]
        for layer, memory, cache in zip(self._stack(), projected, state.caches):
            x, cache = layer.step(x, cache, state.positions, unwritten, memory, bias, record)
            caches.append(cache)
        normed: Tensor = self.norm(x)
        return normed, tuple(caches)


@dataclass
class TransformerMemory(Memory):
    """The encoder's states, and from ``start`` on what decoding computes once."""

    states: Tensor  # [B, S, D]
    bias: Tensor  # [B, 1, 1, S] 0 at real positions, -inf at padding
    projected: Projected = ()
    output: OutputLayer | None = None  # over the shortlist, if there is one


@dataclass
class TransformerState(DecoderState):
    """The self-attention caches and how far each hypothesis is."""

    positions: Tensor  # [N] of the next token
    caches: tuple[KeyValueCache, ...]  # by layer

    @property
    def length(self) -> int:
        """Positions in the caches; no row's position is beyond."""
        return self.caches[0].length


@models.register("transformer", TransformerConfig)
class Transformer(EncoderDecoder):
    """An encoder-decoder made of attention alone."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        scale = math.sqrt(config.d_model)
        shares_all = config.shares_all(sizes)
        source = Embedding(sizes.source, config.d_model, scale)
        target = source if shares_all else Embedding(sizes.target, config.d_model, scale)
        shares_output = shares_all or config.share_decoder_embeddings
        self.width = config.d_model
        self.source_input = InputLayer(source, _positions(config), config.dropout)
        self.target_input = InputLayer(Borrowed(source) if shares_all else target, _positions(config), config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = TiedOutput(target) if shares_output else LinearOutput(_output_weight(sizes.target, self.width))

    def encode(self, source: Tensor, source_lengths: Tensor) -> TransformerMemory:
        return self._encode(source, source_lengths, record={})

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, TransformerMemory)
        self._check_length(batch.target_in, "target")
        record: Record = {kind: [] for kind in attention.kinds} if attention else {}
        x = self.target_input(batch.target_in)
        x = self.decoder(x, self.decoder.project(memory.states), memory.bias, record)
        hidden = real_rows(x, batch.target_lengths, batch.target_offsets, batch.num_tokens)
        return DecoderOutput(hidden, self._maps(record, batch) if attention else None)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, TransformerMemory)
        rows = memory.states.size(0) * beam_size
        positions = torch.zeros(rows, dtype=torch.long, device=memory.states.device)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        projected = self.decoder.project(memory.states)
        caches = self.decoder.empty_caches(rows, like=projected[0][0])  # autocast's type, if it is on
        return replace(memory, projected=projected, output=output), TransformerState(positions, caches)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, TransformerMemory) and isinstance(state, TransformerState)
        assert memory.output is not None, "the memory comes from start()"
        record: Record = {"cross": []} if attention else {}
        x = self.target_input.at(tokens, state.positions, state.length + 1)[:, None]  # [N, 1, D]
        x, caches = self.decoder.step(x, state, memory.projected, memory.bias, record)
        scores = memory.output.logits(x[:, 0])
        # The last layer's cross-attention [B, H, K, S], the mean over its heads.
        weights = record["cross"][-1].mean(1).flatten(0, 1) if attention else None  # [N, S]
        return StepOutput(scores, False, TransformerState(state.positions + 1, caches), weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limit = self.target_input.positions.limit
        return None if limit is None else torch.full_like(source_lengths, limit)

    def max_source_length(self) -> int | None:
        return self.source_input.positions.limit

    def _encode(self, source: Tensor, source_lengths: Tensor, record: Record) -> TransformerMemory:
        self._check_length(source, "source")
        x = self.source_input(source)
        bias = padding_bias(source_lengths, source.size(1), x.dtype)[:, None, None]  # [B, 1, 1, S]
        return TransformerMemory(self.encoder(x, bias, record), bias)

    def _maps(self, record: Record, batch: Batch) -> AttentionMaps:
        if "encoder" in record:  # the memory does not keep them: the encoder runs once more, for those who ask
            self._encode(batch.source, batch.source_lengths, record)
        if "decoder" in record:  # queries at padding may have looked at padding
            real = real_positions(batch.target_lengths, batch.target_in.size(1))[:, None, None]  # [B, 1, 1, T]
            record["decoder"] = [weights * real for weights in record["decoder"]]
        return AttentionMaps({kind: tuple(weights) for kind, weights in record.items()})

    def _check_length(self, ids: Tensor, side: str) -> None:
        limit = self.max_source_length()
        if limit is not None and ids.size(1) > limit:
            raise DataError(
                f"a {side} sentence has {ids.size(1)} pieces, but the model has learned positions for {limit}; raise "
                f"model.max_positions, or filter such sentences (--max-length {limit - 1} when preprocessing)"
            )


def _positions(config: TransformerConfig) -> SinusoidalPositions | LearnedPositions:
    if config.positions is PositionKind.learned:
        return LearnedPositions(config.d_model, config.max_positions)
    return SinusoidalPositions(config.d_model)


def _output_weight(vocabulary_size: int, d_model: int) -> Tensor:
    return torch.empty(vocabulary_size, d_model).normal_(std=d_model**-0.5)

"""The Transformer of "Attention Is All You Need": Vaswani et al. 2017, arXiv:1706.03762.

parts.py builds the parts of the layers from the options in config.py, so this file serves every variant of the model.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
D model width, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

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
    StepOutput,
    VocabularySizes,
    predicting,
    real_positions,
)
from nmt.layers.dropout import LayerDropout
from nmt.layers.embeddings import Borrowed, Embedding, InputLayer
from nmt.layers.padding import padding_bias, real_rows
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.config import shares_embeddings
from nmt.models.output_layers import LinearOutput, ScoredMemory, TiedOutput
from nmt.models.transformer.attention_kernels import supports_flat_batches
from nmt.models.transformer.autoregression import BeamHistory, LayerCache
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.layers import MemoryHeads, Record, SourceLayer, TargetLayer
from nmt.models.transformer.mask import FlatMask, Mask, Segments, segments_of
from nmt.models.transformer.parts import STACKS, Stacks, TargetInput, embedding_norm, final_norms, mask_biases

Layer = TypeVar("Layer", SourceLayer, TargetLayer)


class LayerStack(nn.Module, Generic[Layer]):
    """A stack of layers; a pre-norm stack ends in a norm. Section 3.1."""

    def __init__(self, layers: Iterable[Layer], norm: nn.Module, biases: nn.Module, dropout: float = 0.0) -> None:
        """``biases`` adds biases of positions to the mask; ``dropout`` skips whole layers."""
        super().__init__()
        self.biases = biases
        self.dropout = LayerDropout(dropout)
        self.layers: Stack[Layer] = Stack(layers)
        self.norm = norm

    @property
    def self_attention(self) -> Any:
        """The self-attention of the first layer; its mask serves all layers."""
        return next(iter(self.layers)).self_attention


class Encoder(LayerStack[SourceLayer]):
    """The stack of encoder layers."""

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        mask = self.biases(mask)
        for layer in self.layers:
            x = self.dropout(x, layer(x, mask, record))
        return self.norm(x)


class Decoder(LayerStack[TargetLayer]):
    """The stack of decoder layers."""

    def project(self, states: Tensor) -> tuple[MemoryHeads, ...]:
        """Project the encoder output [B, S, D] to each layer's keys and values; contiguous, since every step reads them."""
        projected = (layer.project(states) for layer in self.layers)
        return tuple((keys.contiguous(), values.contiguous()) for keys, values in projected)

    def forward(self, x: Tensor, mask: Mask, states: Tensor, memory_mask: Mask, record: Record) -> Tensor:
        """All positions at once: [B, T, D] -> [B, T, D]; ``memory_mask`` masks the encoder output ``states`` [B, S, D]."""
        mask = self.biases(mask)
        for layer in self.layers:
            x = self.dropout(x, layer(x, mask, states, memory_mask, record))
        return self.norm(x)

    def step(
        self, x: Tensor, state: TransformerState, memory: TransformerMemory, record: Record
    ) -> tuple[Tensor, TransformerState]:
        """One position: [B, K, D] -> [B, K, D], and the state with that position."""
        history, memory_mask = state.history.entered(), Mask(memory.bias)
        mask = self.biases(next(iter(self.layers)).step_mask(state.caches[0], history))
        caches: list[LayerCache] = []
        for layer, heads, cache in zip(self.layers, memory.projected, state.caches):
            x, written = layer.step(x, cache, mask, heads, memory_mask, record)
            caches.append(written)
        return self.norm(x), TransformerState(history.passed(), tuple(caches))


@dataclass
class TransformerMemory(ScoredMemory):
    """The encoder output; ``start`` adds the keys and values that every decoding step reads."""

    states: Tensor  # [B, S, D]
    bias: Tensor  # [B, 1, 1, S] 0 at real positions, -inf at padding
    projected: tuple[MemoryHeads, ...] = ()  # by layer


@dataclass
class TransformerState(DecoderState):
    """The beam history and the key-value cache of each layer."""

    history: BeamHistory
    caches: tuple[LayerCache, ...]  # by layer


@models.register("transformer", TransformerConfig)
class Transformer(EncoderDecoder):
    """An encoder-decoder based solely on attention: figure 1."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes, stacks: Stacks | None = None) -> None:
        """``stacks`` replaces the layers that ``config.layers`` selects."""
        super().__init__()
        stacks = stacks or STACKS[config.layers](config)
        scale = math.sqrt(config.d_model) if config.embedding_scale else 1.0
        shares_all = shares_embeddings(config.share_all_embeddings, sizes.shared)
        source = Embedding(sizes.source, config.d_model, scale)
        shares_inputs = shares_all or shares_embeddings(
            config.share_input_embeddings, sizes.shared, "share_input_embeddings"
        )
        target = source if shares_inputs else Embedding(sizes.target, config.d_model, scale)
        self.width, self.head_width = config.d_model, config.head_sizes().d_k
        norm = embedding_norm(config)
        self.source_input = InputLayer(source, stacks.input_positions(config), config.dropout, norm)
        borrowed = Borrowed(source) if shares_inputs else target
        self.target_input = TargetInput(borrowed, stacks.input_positions(config), config)
        source_norm, target_norm = final_norms(config)
        source_biases, target_biases = mask_biases(config)
        self.encoder = Encoder(stacks.encoder(config), source_norm, source_biases, config.layer_dropout)
        self.decoder = Decoder(stacks.decoder(config), target_norm, target_biases, config.layer_dropout)
        self.ignored = tuple(self._ignored_positions(config))
        if shares_all and config.share_all_embeddings is None and not config.share_decoder_embeddings:
            self.ignored += ("model.share_decoder_embeddings=false",)  # one matrix serves the joint vocabulary
        if config.share_decoder_embeddings or shares_all:
            self.output: OutputLayer = TiedOutput(target, bias=config.output_bias)
        else:
            weight = torch.empty(sizes.target, self.width).normal_(std=self.width**-0.5)
            self.output = LinearOutput(weight, torch.zeros(sizes.target) if config.output_bias else None)

    def _ignored_positions(self, config: TransformerConfig) -> Iterator[str]:
        """Yield the positions option for each stack whose replaced self-attention does not apply it."""
        if not config.positions.is_inside_attention:
            return
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            if not any(layer.self_attention.applies_positions for layer in stack.layers):
                yield f"model.positions={config.positions.name} in the {name}"

    def forward(self, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        if attention is None and self.without_padding(batch.source.device):
            return predicting(batch, self._forward_without_padding(batch.whole()))
        return super().forward(batch, attention)

    def encode(self, source: Tensor, source_lengths: Tensor) -> TransformerMemory:
        return self._encode(source, source_lengths, Record(lengths=source_lengths))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, TransformerMemory)
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        record = Record(attention.kinds if attention else (), batch.target_lengths)
        x = self.target_input(batch.target_in)
        mask = self.decoder.self_attention.causal_mask(x)
        x = self.decoder(x, mask, memory.states, Mask(memory.bias), record)
        hidden = real_rows(x, batch.target_lengths, batch.target_offsets, batch.num_tokens)
        maps = self._maps(record, batch) if attention else None
        return DecoderOutput(hidden, maps, self._auxiliary(memory, record, batch))

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, TransformerMemory)
        sentences = memory.states.size(0)
        computed = _as_computed(memory.states)
        caches = tuple(layer.start(sentences, beam_size, like=computed) for layer in self.decoder.layers)
        history = BeamHistory.start(sentences, beam_size, like=memory.states)
        memory = replace(memory.scored_by(self.output, vocabulary), projected=self.decoder.project(memory.states))
        return memory, TransformerState(history, caches)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, TransformerMemory) and isinstance(state, TransformerState)
        assert memory.projected, "the memory comes from start()"
        record, history = Record(("cross",) if attention else ()), state.history
        x = self.target_input.at(tokens, history.positions, history.bound)  # [N, D]
        x = x.view(-1, history.beam, self.width)  # [B, K, D]: the hypotheses of a sentence are queries
        x, state = self.decoder.step(x, state, memory, record)
        scores = self.scores(x.flatten(0, 1), memory.output)
        # The mean over the heads of the last layer's cross-attention [B, H, K, S].
        weights = record.attention["cross"][-1].mean(1).flatten(0, 1) if attention else None  # [N, S]
        return StepOutput(scores, False, state, weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limit = self.target_input.positions.limit
        return None if limit is None else torch.full_like(source_lengths, limit)

    def max_source_length(self) -> int | None:
        return self.source_input.positions.limit

    def _encode(self, source: Tensor, source_lengths: Tensor, record: Record) -> TransformerMemory:
        self.source_input.positions.check_length(source.size(1), "source")
        x = self.source_input(source)
        bias = padding_bias(source_lengths, source.size(1), x.dtype)[:, None, None]  # [B, 1, 1, S]
        mask = self.encoder.self_attention.padding_mask(bias)
        return TransformerMemory(self.encoder(x, mask, record), bias)

    def without_padding(self, device: torch.device) -> bool:
        """Whether training on ``device`` runs without padding, under the current autocast."""
        parts = (*self.encoder.layers, *self.decoder.layers, self.encoder.biases, self.decoder.biases)
        flat = all(part.flat for part in parts)
        return flat and supports_flat_batches(device, self.head_width)

    def _forward_without_padding(self, batch: Batch) -> DecoderOutput:
        self.source_input.positions.check_length(batch.source.size(1), "source")
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        source, target = segments_of(batch)
        x = _embedded(self.source_input, batch.source, source)
        states = self.encoder(x, self.encoder.self_attention.flat_mask(source), Record())
        x = _embedded(self.target_input, batch.target_in, target)
        mask, memory_mask = self.decoder.self_attention.flat_mask(target), FlatMask(None, queries=target, keys=source)
        return DecoderOutput(self.decoder(x, mask, states, memory_mask, Record())[0])

    def _auxiliary(self, memory: Memory, record: Record, batch: Batch) -> dict[str, Tensor]:
        """Return named auxiliary losses; the paper has none."""
        return {}

    def _maps(self, record: Record, batch: Batch) -> AttentionMaps:
        maps = dict(record.attention)
        if "encoder" in maps:  # the memory does not hold the weights, so the encoder runs again
            again = Record(("encoder",), batch.source_lengths)
            self._encode(batch.source, batch.source_lengths, again)
            maps |= again.attention
        for kind, lengths in {"encoder": batch.source_lengths, "decoder": batch.target_lengths}.items():
            if kind in maps:  # queries at padding may attend to padding
                maps[kind] = [w * real_positions(lengths, w.size(-1))[:, None, None] for w in maps[kind]]
        return AttentionMaps({kind: tuple(weights) for kind, weights in maps.items()})


def _as_computed(states: Tensor) -> Tensor:
    """Return ``states`` in the data type of matrix products: autocast's, if enabled."""
    device = states.device.type
    return states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states


def _embedded(layer: InputLayer, ids: Tensor, segments: Segments) -> Tensor:
    """Embed ids without padding: [B, T] -> [1, M, D]"""
    return layer.at(segments.flatten(ids), segments.positions.queries, segments.longest)[None]

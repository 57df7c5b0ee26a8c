"""The Transformer of "Attention Is All You Need": Vaswani et al. 2017, arXiv:1706.03762.

This file is the paper's model, and stays so for every variant of it: the layers' parts are chosen by parts.py
from the options in config.py.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
D model width, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    Memory,
    OutputLayer,
    StepOutput,
    VocabularySizes,
    real_positions,
)
from nmt.layers.embeddings import Borrowed, Embedding, InputLayer
from nmt.layers.padding import padding_bias, real_rows
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.config import shares_embeddings
from nmt.models.output_layers import LinearOutput, ScoredMemory, TiedOutput
from nmt.models.transformer.autoregression import BeamHistory, LayerCache
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.layers import MemoryHeads, Record, SourceLayer, TargetLayer
from nmt.models.transformer.mask import Mask
from nmt.models.transformer.parts import STACKS, Stacks, TargetInput, final_norms
from nmt.models.transformer.without_padding import WithoutPadding


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm stacks end in a norm."""

    def __init__(self, layers: Iterable[SourceLayer], norm: nn.Module) -> None:
        super().__init__()
        self.layers = Stack(layers)
        self.norm = norm

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        for layer in self.layers:
            x = layer(x, mask, record)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers; pre-norm stacks end in a norm."""

    def __init__(self, layers: Iterable[TargetLayer], norm: nn.Module) -> None:
        super().__init__()
        self.layers = Stack(layers)
        self.norm = norm

    def project(self, states: Tensor) -> tuple[MemoryHeads, ...]:
        """What each layer reads of the memory's states [B, S, D]; contiguous, since every step reads it."""
        projected = (layer.project(states) for layer in self.layers)
        return tuple((keys.contiguous(), values.contiguous()) for keys, values in projected)

    def forward(self, x: Tensor, mask: Mask, states: Tensor, memory_mask: Mask, record: Record) -> Tensor:
        """All positions at once, [B, T, D] -> [B, T, D]; ``memory_mask``: which states [B, S, D] may be seen."""
        for layer in self.layers:
            x = layer(x, mask, states, memory_mask, record)
        return self.norm(x)

    def step(
        self, x: Tensor, state: TransformerState, memory: TransformerMemory, record: Record
    ) -> tuple[Tensor, TransformerState]:
        """One position, [B, K, D] -> [B, K, D], and the state with that position in it."""
        history, memory_mask = state.history.entered(), Mask(memory.bias)
        mask = next(iter(self.layers)).step_mask(state.caches[0], history)
        caches: list[LayerCache] = []
        for layer, heads, cache in zip(self.layers, memory.projected, state.caches):
            x, written = layer.step(x, cache, mask, heads, memory_mask, record)
            caches.append(written)
        return self.norm(x), TransformerState(history.passed(), tuple(caches))


@dataclass
class TransformerMemory(ScoredMemory):
    """The encoder's states, and from ``start`` on what decoding computes once."""

    states: Tensor  # [B, S, D]
    bias: Tensor  # [B, 1, 1, S] 0 at real positions, -inf at padding
    projected: tuple[MemoryHeads, ...] = ()  # by layer


@dataclass
class TransformerState(DecoderState):
    """Where the hypotheses come from, and what each layer remembers of them."""

    history: BeamHistory
    caches: tuple[LayerCache, ...]  # by layer


@models.register("transformer", TransformerConfig)
class Transformer(WithoutPadding):
    """An encoder-decoder made of attention alone."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes, stacks: Stacks | None = None) -> None:
        """``stacks``: other layers than those that the configuration names."""
        super().__init__()
        stacks = stacks or STACKS[config.layers]
        scale = math.sqrt(config.d_model) if config.embedding_scale else 1.0
        shares_all = shares_embeddings(config.share_all_embeddings, sizes.shared)
        source = Embedding(sizes.source, config.d_model, scale)
        target = source if shares_all else Embedding(sizes.target, config.d_model, scale)
        self.width = config.d_model
        self.source_input = InputLayer(source, stacks.input_positions(config), config.dropout)
        borrowed = Borrowed(source) if shares_all else target
        self.target_input = TargetInput(borrowed, stacks.input_positions(config), config.dropout, config.start_symbol)
        source_norm, target_norm = final_norms(config)
        self.encoder = Encoder(stacks.encoder(config), source_norm)
        self.decoder = Decoder(stacks.decoder(config), target_norm)
        if shares_all or config.share_decoder_embeddings:
            self.output: OutputLayer = TiedOutput(target, bias=config.output_bias)
        else:
            weight = torch.empty(sizes.target, self.width).normal_(std=self.width**-0.5)
            self.output = LinearOutput(weight, torch.zeros(sizes.target) if config.output_bias else None)

    def encode(self, source: Tensor, source_lengths: Tensor) -> TransformerMemory:
        return self._encode(source, source_lengths, Record(lengths=source_lengths))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, TransformerMemory)
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        record = Record(attention.kinds if attention else (), batch.target_lengths)
        x = self.target_input(batch.target_in)
        mask = next(iter(self.decoder.layers)).self_attention.causal_mask(x)
        x = self.decoder(x, mask, memory.states, Mask(memory.bias), record)
        hidden = real_rows(x, batch.target_lengths, batch.target_offsets, batch.num_tokens)
        return DecoderOutput(hidden, self._maps(record, batch) if attention else None, self._auxiliary(memory, record))

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
        x = x.view(-1, history.beam, self.width)  # the hypotheses of a sentence are queries side by side
        x, state = self.decoder.step(x, state, memory, record)
        scores = self.scores(x.flatten(0, 1), memory.output)
        # The last layer's cross-attention [B, H, K, S], the mean over its heads.
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
        mask = next(iter(self.encoder.layers)).self_attention.padding_mask(bias)
        return TransformerMemory(self.encoder(x, mask, record), bias)

    def _auxiliary(self, memory: Memory, record: Record) -> dict[str, Tensor]:
        """Further losses, as named means; the paper has none."""
        return {}

    def _maps(self, record: Record, batch: Batch) -> AttentionMaps:
        maps = dict(record.attention)
        if "encoder" in maps:  # the memory does not keep them: the encoder runs once more, for those who ask
            again = Record(("encoder",), batch.source_lengths)
            self._encode(batch.source, batch.source_lengths, again)
            maps |= again.attention
        for kind, lengths in {"encoder": batch.source_lengths, "decoder": batch.target_lengths}.items():
            if kind in maps:  # queries at padding may have looked at padding
                maps[kind] = [w * real_positions(lengths, w.size(-1))[:, None, None] for w in maps[kind]]
        return AttentionMaps({kind: tuple(weights) for kind, weights in maps.items()})


def _as_computed(states: Tensor) -> Tensor:
    """A tensor of the type that products are computed in: autocast's, if it is on."""
    device = states.device.type
    return states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states

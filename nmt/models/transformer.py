"""The Transformer of "Attention Is All You Need": Vaswani et al. 2017, arXiv:1706.03762.

This file is the paper's model, and stays so for every variant of it: the layers' parts are chosen by transformer_parts.py
from the options in transformer_config.py.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
D model width, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

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
    Scoring,
    StepOutput,
    VocabularySizes,
    real_positions,
)
from nmt.models import models
from nmt.models.output_layers import LinearOutput, TiedOutput
from nmt.models.transformer_config import NormOrder, PositionKind, TransformerConfig
from nmt.models.transformer_parts import Stacks, final_norm, stacks_of
from nmt.modules.autoregression import FixedLineage, Lineage, Past
from nmt.modules.embeddings import Borrowed, Embedding
from nmt.modules.flat_attention import kernel_runs
from nmt.modules.native_layers import encode
from nmt.modules.padding import padding_bias, real_rows
from nmt.modules.sight import Room, Segments, Sight, across
from nmt.modules.stack import Stack
from nmt.modules.transformer_layers import InputLayer, MemoryHeads, Record, SourceLayer, Step, TargetLayer
from nmt.native.layers import Layer as NativeLayer

__all__ = ["NormOrder", "PositionKind", "Transformer", "TransformerConfig", "TransformerMemory", "TransformerState"]


class Encoder(nn.Module):
    """A stack of encoder layers; pre-norm stacks end in a norm."""

    def __init__(self, layers: list[SourceLayer], norm: nn.Module) -> None:
        super().__init__()
        self.layers = Stack(layers)
        self.norm = norm

    def stack(self) -> Iterator[SourceLayer]:
        return iter(cast(Iterable[SourceLayer], self.layers))

    def forward(self, x: Tensor, sight: Sight, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        native = None if self.training or record.of("encoder") is not None else self._natively()
        if native is not None and record.lengths is not None:
            x = encode(native, x, record.lengths)
        else:
            for layer in self.stack():
                x = layer(x, sight, record)
        normed: Tensor = self.norm(x)
        return normed

    def _natively(self) -> list[NativeLayer] | None:
        """The layers in C, where that knows all of them."""
        layers = [native for layer in self.stack() if (native := layer.natively()) is not None]
        return layers if len(layers) == len(self.layers) else None


class Decoder(nn.Module):
    """A stack of decoder layers; pre-norm stacks end in a norm."""

    def __init__(self, layers: list[TargetLayer], norm: nn.Module) -> None:
        super().__init__()
        self.layers = Stack(layers)
        self.norm = norm

    def stack(self) -> Iterator[TargetLayer]:
        return iter(cast(Iterable[TargetLayer], self.layers))

    def prepare(self, states: Tensor) -> tuple[MemoryHeads, ...]:
        """What the steps of each layer read of the memory's states [B, S, D]."""
        return tuple(layer.prepare(states) for layer in self.stack())

    def start(self, sentences: int, beam: int, like: Tensor) -> tuple[Past, ...]:
        return tuple(layer.start(sentences, beam, like) for layer in self.stack())

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> tuple[Past, ...] | None:
        """The same with room for so many steps, where all layers can do that."""
        pasts = [layer.start_fixed(sentences, beam, steps, like) for layer in self.stack()]
        known = tuple(past for past in pasts if past is not None)
        return known if len(known) == len(pasts) else None

    def forward(self, x: Tensor, sight: Sight, states: Tensor, seen: Sight, record: Record) -> Tensor:
        """All positions at once, [B, T, D] -> [B, T, D]; ``seen``: what may be seen of the memory's states [B, S, D]."""
        for layer in self.stack():
            x = layer(x, sight, states, seen, record)
        normed: Tensor = self.norm(x)
        return normed

    def step(
        self, x: Tensor, state: TransformerState, memory: TransformerMemory, record: Record
    ) -> tuple[Tensor, TransformerState]:
        """One position, [B, K, D] -> [B, K, D], and the state with that position in it."""
        lineage, seen = state.lineage.entered(), Sight(memory.bias)
        sight = next(self.stack()).now(state.pasts[0], lineage)
        pasts: list[Past] = []
        for step, heads, past in zip(memory.steps, memory.projected, state.pasts):
            x, past = step(x, past, sight, heads, seen, record)
            pasts.append(past)
        normed: Tensor = self.norm(x)
        return normed, TransformerState(lineage.passed(), tuple(pasts))


@dataclass
class TransformerMemory(Memory):
    """The encoder's states, and from ``start`` on what decoding computes once."""

    states: Tensor  # [B, S, D]
    bias: Tensor  # [B, 1, 1, S] 0 at real positions, -inf at padding
    projected: tuple[MemoryHeads, ...] = ()  # by layer
    steps: tuple[Step, ...] = ()  # what computes a step of each layer
    output: Scoring | None = None  # over the shortlist, if there is one


@dataclass
class TransformerState(DecoderState):
    """Where the hypotheses come from, and what each layer remembers of them."""

    lineage: Lineage
    pasts: tuple[Past, ...]  # by layer

    def reaching(self, steps: int) -> TransformerState:
        return TransformerState(self.lineage.reaching(steps), tuple(past.reaching(steps) for past in self.pasts))


@models.register("transformer", TransformerConfig)
class Transformer(EncoderDecoder):
    """An encoder-decoder made of attention alone."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes, stacks: Stacks | None = None) -> None:
        """``stacks``: other layers than those that the configuration names."""
        super().__init__()
        stacks = stacks or stacks_of(config)
        scale = math.sqrt(config.d_model)
        shares_all = config.shares_all(sizes)
        source = Embedding(sizes.source, config.d_model, scale)
        target = source if shares_all else Embedding(sizes.target, config.d_model, scale)
        shares_output = shares_all or config.share_decoder_embeddings
        self.width = config.d_model
        self.source_input = InputLayer(source, stacks.input_positions(config), config.dropout)
        borrowed = Borrowed(source) if shares_all else target
        self.target_input = InputLayer(borrowed, stacks.input_positions(config), config.dropout)
        self.encoder = Encoder(stacks.encoder(config), final_norm(config))
        self.decoder = Decoder(stacks.decoder(config), final_norm(config))
        self.output = TiedOutput(target) if shares_output else LinearOutput(_output_weight(sizes.target, self.width))

    def forward(self, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        if attention is None and self.without_padding(batch.source.device):
            return self._forward_flat(batch)
        return super().forward(batch, attention)

    def without_padding(self, device: torch.device) -> bool:
        """Where the device has a kernel for that, and every layer may use it."""
        return kernel_runs(device) and all(layer.flat for layer in (*self.encoder.stack(), *self.decoder.stack()))

    def encode(self, source: Tensor, source_lengths: Tensor) -> TransformerMemory:
        return self._encode(source, source_lengths, Record(lengths=source_lengths))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, TransformerMemory)
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        record = Record(attention.kinds if attention else (), batch.target_lengths)
        x = self.target_input(batch.target_in)
        x = self.decoder(x, next(self.decoder.stack()).whole(x), memory.states, Sight(memory.bias), record)
        hidden = real_rows(x, batch.target_lengths, batch.target_offsets, batch.num_tokens)
        return DecoderOutput(hidden, self._maps(record, batch) if attention else None, self._auxiliary(memory, record))

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, TransformerMemory)
        sentences = memory.states.size(0)
        pasts = self.decoder.start(sentences, beam_size, like=_as_computed(memory.states))
        lineage = Lineage.start(sentences, beam_size, like=memory.states)
        return self._prepared(memory, vocabulary), TransformerState(lineage, pasts)

    def start_fixed(self, memory: Memory, beam_size: int, steps: int) -> tuple[Memory, DecoderState] | None:
        assert isinstance(memory, TransformerMemory)
        sentences = memory.states.size(0)
        pasts = self.decoder.start_fixed(sentences, beam_size, steps, like=_as_computed(memory.states))
        if pasts is None:
            return None
        lineage = FixedLineage.with_room(sentences, beam_size, steps, like=memory.states)
        return self._prepared(memory, None), TransformerState(lineage, pasts)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, TransformerMemory) and isinstance(state, TransformerState)
        assert memory.output is not None, "the memory comes from start()"
        record, lineage = Record(("cross",) if attention else ()), state.lineage
        x = self.target_input.at(tokens, lineage.positions, lineage.bound)  # [N, D]
        x = x.view(-1, lineage.beam, self.width)  # the hypotheses of a sentence are queries side by side
        x, state = self.decoder.step(x, state, memory, record)
        scores = memory.output.logits(x.flatten(0, 1))
        # The last layer's cross-attention [B, H, K, S], the mean over its heads.
        weights = record.attention["cross"][-1].mean(1).flatten(0, 1) if attention else None  # [N, S]
        return StepOutput(scores, False, state, weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limit = self.target_input.positions.limit
        return None if limit is None else torch.full_like(source_lengths, limit)

    def max_source_length(self) -> int | None:
        return self.source_input.positions.limit

    def _prepared(self, memory: TransformerMemory, vocabulary: Tensor | None) -> TransformerMemory:
        """The memory with what steps need of it."""
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        steps = tuple(layer.stepper() for layer in self.decoder.stack())
        return replace(memory, projected=self.decoder.prepare(memory.states), steps=steps, output=output)

    def _encode(self, source: Tensor, source_lengths: Tensor, record: Record) -> TransformerMemory:
        self.source_input.positions.check_length(source.size(1), "source")
        x = self.source_input(source)
        bias = padding_bias(source_lengths, source.size(1), x.dtype)[:, None, None]  # [B, 1, 1, S]
        return TransformerMemory(self.encoder(x, next(self.encoder.stack()).around(bias), record), bias)

    def _forward_flat(self, batch: Batch) -> DecoderOutput:
        """As ``forward``, without padding."""
        self.source_input.positions.check_length(batch.source.size(1), "source")
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        longest, counts = (batch.source.size(1), batch.target_in.size(1)), (batch.num_source_tokens, batch.num_tokens)
        room = Room.for_sides(counts, longest, batch.num_sentences) if self.few_shapes else None
        source = Segments.of(batch.source_lengths, batch.source_offsets, longest[0], counts[0], room)
        target = Segments.of(batch.target_lengths, batch.target_offsets, longest[1], counts[1], room)
        x = self.source_input.flat(batch.source, source)
        states = self.encoder(x, next(self.encoder.stack()).along(source), Record())
        y = self.target_input.flat(batch.target_in, target)
        sight = next(self.decoder.stack()).along(target)
        y = self.decoder(y, sight, states, across(target, source), Record())
        return DecoderOutput(target.real(y[0]), None, {})

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


def _output_weight(vocabulary_size: int, d_model: int) -> Tensor:
    return torch.empty(vocabulary_size, d_model).normal_(std=d_model**-0.5)

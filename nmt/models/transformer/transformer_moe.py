"""A Transformer with mixtures of experts: the feed-forward networks of some layers are many, of which each token reads few.

The gate and its losses are those of Shazeer et al. 2017, arXiv:1701.06538; that every second layer has experts is from
Lepikhin et al. 2020, arXiv:2006.16668, section 2.1. Shapes: B sentences, T positions of either side, n real positions of
all sentences, D model width, E experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from nmt.interface import Memory, VocabularySizes
from nmt.layers.experts import Experts, NoisyTopK, balance, tokens_by_sentence
from nmt.models import models
from nmt.models.transformer.config import TransformerMoEConfig
from nmt.models.transformer.layers import DecoderLayer, EncoderLayer, Layer, LayerParts, Record
from nmt.models.transformer.parts import Stacks, layer_parts, position_vectors
from nmt.models.transformer.transformer import Transformer, TransformerMemory

Made = TypeVar("Made", EncoderLayer, DecoderLayer)


class ExpertFeedForward(nn.Module):
    """A gate and its experts in place of one feed-forward network. Padding is not routed: it comes out as zeros."""

    def __init__(self, gating: NoisyTopK, experts: Experts) -> None:
        super().__init__()
        self.gating = gating
        self.experts = experts

    def forward(self, x: Tensor, record: Record) -> Tensor:
        """[B, T, D] -> [B, T, D]; ``record`` receives each token's part [n, 2, E] in the experts' importance and load."""
        if record.lengths is None:
            mixed = self._mix(x.flatten(0, 1), record)
            return mixed.view_as(x)
        real = torch.arange(x.size(1), device=x.device) < record.lengths[:, None]  # [B, T]
        mixed = self._mix(x[real], record)
        return mixed.new_zeros(x.shape).masked_scatter(real[:, :, None], mixed)

    def _mix(self, tokens: Tensor, record: Record) -> Tensor:
        """[n, D] -> [n, D]"""
        routing = self.gating(tokens)
        record.usage.append(torch.stack([routing.gates, routing.load], dim=1))
        return self.experts(tokens, routing)


class ExpertLayer(Layer):
    """A layer of either stack with a mixture of experts."""

    flat = False  # each sentence's share in the experts is asked for

    def feed(self, x: Tensor, record: Record) -> Tensor:
        return self.feed_forward_residual(x, lambda y: self.feed_forward(y, record))


class ExpertEncoderLayer(ExpertLayer, EncoderLayer):
    """Self-attention and a mixture of experts."""


class ExpertDecoderLayer(ExpertLayer, DecoderLayer):
    """Self-attention, attention over the memory, and a mixture of experts."""


def stacks(config: TransformerMoEConfig) -> Stacks:
    """Dense layers, and among them, counted from the top, every so many a layer with experts."""
    width, inner, experts = config.d_model, config.expert_size or config.d_ff, config.num_experts
    dense = layer_parts(config)
    expert = replace(
        dense,
        feed_forward=lambda: ExpertFeedForward(
            NoisyTopK(width, experts, config.experts_per_token),
            Experts(width, inner, experts, config.activation_dropout),
        ),
    )

    def stack(layers: int, plain: Callable[[LayerParts], Made], mixing: Callable[[LayerParts], Made]) -> list[Made]:
        has_experts = [(layers - 1 - layer) % config.experts_every == 0 for layer in range(layers)]
        return [mixing(expert) if has else plain(dense) for has in has_experts]

    return Stacks(
        position_vectors,
        encoder=lambda c: stack(c.encoder_layers, EncoderLayer, ExpertEncoderLayer),
        decoder=lambda c: stack(c.decoder_layers, DecoderLayer, ExpertDecoderLayer),
    )


@dataclass
class TransformerMoEMemory(TransformerMemory):
    """What the encoder read, and how its experts were used."""

    usage: Tensor = field(default_factory=lambda: torch.empty(0))  # [B, layers, 2, E] importance and load, by sentence


@models.register("transformer_moe", TransformerMoEConfig)
class TransformerMoE(Transformer):
    """An encoder-decoder made of attention and experts."""

    shapes_depend_on_tokens = True  # how many tokens an expert reads

    def __init__(self, config: TransformerMoEConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes, stacks(config))
        self.importance_weight, self.load_weight = config.importance_weight, config.load_weight

    def _encode(self, source: Tensor, source_lengths: Tensor, record: Record) -> TransformerMoEMemory:
        memory = super()._encode(source, source_lengths, record)
        usage = [tokens_by_sentence(used, source_lengths) for used in record.usage]
        return TransformerMoEMemory(memory.states, memory.bias, usage=torch.stack(usage, dim=1))

    def _auxiliary(self, memory: Memory, record: Record) -> dict[str, Tensor]:
        assert isinstance(memory, TransformerMoEMemory)
        decoder = torch.stack([used.sum(0) for used in record.usage])
        return balance(torch.cat([memory.usage.sum(0), decoder]), self.importance_weight, self.load_weight)

"""A Transformer with a mixture of experts as the feed-forward network of some layers.

The gate and its losses follow Shazeer et al. 2017, arXiv:1701.06538; experts in every second layer follow Lepikhin et al.
2020, arXiv:2006.16668, section 2.1.

Shapes: B sentences, T positions of source or target, n real positions of all sentences, D model width, E experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from nmt.interface import Batch, Memory, VocabularySizes
from nmt.layers.experts import Experts, NoisyTopK, balance, tokens_by_sentence, total_usage
from nmt.models import models
from nmt.models.transformer.config import FeedForwardKind, TransformerMoEConfig
from nmt.models.transformer.layers import DecoderLayer, EncoderLayer, LayerParts, Record, TransformerLayer
from nmt.models.transformer.parts import Stacks, layer_parts, position_vectors
from nmt.models.transformer.transformer import Transformer, TransformerMemory

Made = TypeVar("Made", EncoderLayer, DecoderLayer)


class ExpertFeedForward(nn.Module):
    """A gate and its experts. Padding is not routed; its output is zero."""

    def __init__(self, gating: NoisyTopK, experts: Experts) -> None:
        super().__init__()
        self.gating = gating
        self.experts = experts

    def forward(self, x: Tensor, record: Record) -> Tensor:
        """[B, T, D] -> [B, T, D]; ``record`` receives each token's importance and load of the experts [n, 2, E]."""
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


class ExpertLayer(TransformerLayer):
    """An encoder or decoder layer with a mixture of experts."""

    flat = False  # expert usage is recorded by sentence

    def feed(self, x: Tensor, record: Record) -> Tensor:
        return self.feed_forward_residual(x, lambda y: self.feed_forward(y, record))


class ExpertEncoderLayer(ExpertLayer, EncoderLayer):
    """Self-attention and a mixture of experts."""


class ExpertDecoderLayer(ExpertLayer, DecoderLayer):
    """Self-attention, attention to the encoder output, and a mixture of experts."""


def stacks(config: TransformerMoEConfig) -> Stacks:
    """Return stacks in which every ``experts_every``-th layer from the top has experts; the others are dense."""
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
    """The encoder output and the usage of the encoder's experts."""

    usage: Tensor = field(kw_only=True)  # [B, layers, 2, E] importance and load of each sentence


@models.register("transformer_moe", TransformerMoEConfig)
class TransformerMoE(Transformer):
    """A Transformer with experts."""

    shapes_depend_on_tokens = True  # the number of tokens of each expert

    def __init__(self, config: TransformerMoEConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes, stacks(config))
        self.importance_weight, self.load_weight = config.importance_weight, config.load_weight
        if config.feed_forward is not FeedForwardKind.relu:
            where = "" if config.experts_every == 1 else " in the experts"
            self.ignored += (f"model.feed_forward={config.feed_forward.name}{where}",)

    def _encode(self, source: Tensor, source_lengths: Tensor, record: Record) -> TransformerMoEMemory:
        memory = super()._encode(source, source_lengths, record)
        usage = [tokens_by_sentence(used, source_lengths) for used in record.usage]
        return TransformerMoEMemory(memory.states, memory.bias, usage=torch.stack(usage, dim=1))

    def _auxiliary(self, memory: Memory, record: Record, batch: Batch) -> dict[str, Tensor]:
        assert isinstance(memory, TransformerMoEMemory)
        weights = batch.sentence_weights
        decoder = torch.stack([total_usage(used, weights, batch.target_lengths) for used in record.usage])
        encoder = total_usage(memory.usage, weights)
        return balance(torch.cat([encoder, decoder]), self.importance_weight, self.load_weight)

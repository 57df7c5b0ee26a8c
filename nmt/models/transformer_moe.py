"""A Transformer with mixtures of experts: the feed-forward networks of some layers are many, of which each token reads few.

The gate and its losses are those of Shazeer et al. 2017, arXiv:1701.06538; that every second layer has experts is from
Lepikhin et al. 2020, arXiv:2006.16668, section 2.1. Shapes: B sentences, S source positions, n real target positions,
D model width, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from nmt.config.option import option
from nmt.config.sections import require_not_negative, require_positive
from nmt.errors import UsageError
from nmt.interface import Memory, VocabularySizes
from nmt.models import models
from nmt.models.transformer import Transformer, TransformerMemory
from nmt.models.transformer_config import LayerKind, TransformerConfig
from nmt.models.transformer_parts import Stacks, layer_parts, position_vectors
from nmt.modules.expert_layers import ExpertDecoderLayer, ExpertEncoderLayer, ExpertFeedForward
from nmt.modules.experts import Experts, NoisyTopK, balance, tokens_by_sentence
from nmt.modules.transformer_layers import DecoderLayer, EncoderLayer, LayerParts, Record, SourceLayer, TargetLayer

__all__ = ["TransformerMoE", "TransformerMoEConfig", "TransformerMoEMemory"]


@dataclass
class TransformerMoEConfig(TransformerConfig):
    """Everything that a Transformer has, and experts; the defaults are the base model with eight of them."""

    num_experts: int = option(8, help="experts in each mixture")
    experts_per_token: int = option(2, help="experts that read each token")
    expert_size: int | None = option(None, help="inner width of an expert; null: d_ff")
    experts_every: int = option(
        2, help="distance between the layers with experts, from the top: 2 is every second layer, 1 all"
    )
    importance_weight: float = option(0.01, help="weight of the loss that evens out the experts' importance")
    load_weight: float = option(0.01, help="weight of the loss that evens out the experts' load")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("model", num_experts=self.num_experts, experts_per_token=self.experts_per_token)
        require_positive("model", expert_size=self.expert_size, experts_every=self.experts_every)
        require_not_negative("model", importance_weight=self.importance_weight, load_weight=self.load_weight)
        if self.experts_per_token > self.num_experts:
            raise UsageError(
                f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it"
            )
        if self.layers is LayerKind.universal:
            raise UsageError(
                "model.layers=universal and experts: a stack of one layer has no every second one; use "
                "model.layers=separate"
            )

    def shrink(self) -> TransformerMoEConfig:
        """The same structure in small sizes, for tests."""
        small = super().shrink()
        assert isinstance(small, TransformerMoEConfig)
        experts = min(self.num_experts, 5)
        return replace(
            small,
            num_experts=experts,
            experts_per_token=min(self.experts_per_token, experts, 2),
            expert_size=self.expert_size and 8,
            experts_every=min(self.experts_every, 2),
        )


def has_experts(config: TransformerMoEConfig, layer: int, layers: int) -> bool:
    """Of ``layers`` numbered from zero; the top one always has some."""
    return (layers - 1 - layer) % config.experts_every == 0


def expert_parts(config: TransformerMoEConfig) -> LayerParts:
    """What a layer with experts is made of."""
    width, inner = config.d_model, config.expert_size or config.d_ff
    gating = partial(NoisyTopK, width, config.num_experts, config.experts_per_token)
    experts = partial(Experts, width, inner, config.num_experts, config.activation_dropout)
    return replace(layer_parts(config), feed_forward=lambda: ExpertFeedForward(gating(), experts()))


def stacks(config: TransformerMoEConfig) -> Stacks:
    """Dense layers, and among them layers with experts."""
    dense, expert = layer_parts(config), expert_parts(config)

    def encoder_layer(layer: int) -> SourceLayer:
        return ExpertEncoderLayer(expert) if has_experts(config, layer, config.encoder_layers) else EncoderLayer(dense)

    def decoder_layer(layer: int) -> TargetLayer:
        return ExpertDecoderLayer(expert) if has_experts(config, layer, config.decoder_layers) else DecoderLayer(dense)

    return Stacks(
        position_vectors,
        encoder=lambda c: [encoder_layer(layer) for layer in range(c.encoder_layers)],
        decoder=lambda c: [decoder_layer(layer) for layer in range(c.decoder_layers)],
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

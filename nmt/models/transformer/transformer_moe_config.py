"""The options of the Transformer with experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config.checks import Rules, require_not_negative, require_positive
from nmt.config.option import option
from nmt.models import models
from nmt.models.transformer.transformer_config import LayerKind, TransformerConfig


@models.declare("transformer_moe")
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

    def conflicts(self) -> Rules:
        """Options that cannot be chosen together."""
        yield from super().conflicts()
        yield (
            self.experts_per_token > self.num_experts,
            f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it",
        )
        yield (
            self.layers is LayerKind.universal,
            "model.layers=universal and experts: a stack of one layer has no every second one; use model.layers=separate",
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

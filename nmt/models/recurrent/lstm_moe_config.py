"""The options of the recurrent model with experts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nmt.config.checks import refuse, require_not_negative, require_positive, require_share
from nmt.config.option import option
from nmt.models import models


@models.declare("lstm_moe")
@dataclass
class LSTMMoEConfig:
    """Sizes; the defaults are the paper's flat mixture."""

    width: int = option(512, help="width of embeddings, outputs of layers, experts and attention")
    cell_size: int = option(2048, help="width of the cells, projected to `width`")
    num_experts: int = option(32, help="experts in each of the two mixtures")
    experts_per_token: int = option(4, help="experts that read each token")
    expert_size: int = option(2048, help="inner width of an expert")
    importance_weight: float = option(0.01, help="weight of the loss that evens out the experts' importance")
    load_weight: float = option(0.01, help="weight of the loss that evens out the experts' load")
    dropout: float = option(0.4, help="dropout of every layer's output and of the embeddings", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", width=self.width, cell_size=self.cell_size, num_experts=self.num_experts)
        require_positive("model", experts_per_token=self.experts_per_token, expert_size=self.expert_size)
        require_not_negative("model", importance_weight=self.importance_weight, load_weight=self.load_weight)
        require_share("model", dropout=self.dropout)
        refuse(
            (
                self.experts_per_token > self.num_experts,
                f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it",
            ),
            (
                self.width >= self.cell_size,
                f"cell_size={self.cell_size} must be more than width={self.width}, to which it is projected",
            ),
        )

    def shrink(self) -> LSTMMoEConfig:
        """The same structure in small sizes, for tests."""
        experts = min(self.num_experts, 5)
        return replace(
            self,
            width=10,
            cell_size=14,
            num_experts=experts,
            experts_per_token=min(self.experts_per_token, experts, 2),
            expert_size=8,
        )

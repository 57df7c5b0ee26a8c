"""The options of the optimizer ``muon``."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive, require_share
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.adam_config import AdamWConfig

MOST_ITERATIONS = 99  # torch's limit


@optimizers.declare("muon")
@dataclass
class MuonConfig(AdamWConfig):
    """Rate and weight decay are those of both rules; betas and epsilon are AdamW's."""

    whole_matrices = True

    momentum: float = option(0.95, help="share of the momentum that is kept (Nesterov's form)", flag="--momentum")
    iterations: int = option(5, help="Newton-Schulz iterations of a step", flag="--muon-iterations")
    adamw_names: list[str] = option(
        ["*embedding*", "*positions*", "*slots*", "*first_*", "output.*", "criterion.*"],
        help="matrices that AdamW takes, by patterns of their names",
        flag="--muon-adamw",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share("optimizer", momentum=self.momentum)
        require_positive("optimizer", iterations=self.iterations)
        if self.iterations > MOST_ITERATIONS:
            raise UsageError(f"optimizer.iterations={self.iterations} must be at most {MOST_ITERATIONS}; 5 are usual")

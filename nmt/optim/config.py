"""The options of all optimizers; each declaration names the module with the builder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from nmt.config.checks import require_not_negative, require_positive, require_share
from nmt.config.option import flag, option
from nmt.config.roles import OptimizerConfig
from nmt.errors import UsageError
from nmt.optim import optimizers

LARGEST_RATE = 1e4  # beyond it, single precision overflows after a few updates


def check_rates(lr: float | None, weight_decay: float, *, name: str = "lr") -> None:
    """Check a learning rate and a weight decay; ``name``: the option of the learning rate."""
    require_positive("optimizer", **{name: lr})
    require_not_negative("optimizer", weight_decay=weight_decay)
    for key, rate in ((name, lr), ("weight_decay", weight_decay)):
        if rate is not None and rate > LARGEST_RATE:
            smaller = f"give a smaller --{key.replace('_', '-')}"
            raise UsageError(f"optimizer.{key}={rate} must be at most {LARGEST_RATE:g}; {smaller}")


def check_betas(betas: Sequence[float], example: str) -> None:
    if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
        raise UsageError(f"optimizer.betas={list(betas)} must be two numbers of at least 0 and less than 1 ({example})")


@optimizers.declare("sgd", "torch_optimizers")
@dataclass
class SgdConfig(OptimizerConfig):
    """Plain gradient descent."""

    default_rate = 0.1

    lr: float | None = flag(None, help="Peak learning rate; null: 0.1")
    momentum: float = flag(0.0, help="Fraction of the previous step added to the next")
    nesterov: bool = option(False, help="Use Nesterov momentum")
    weight_decay: float = flag(0.0, help="L2 penalty, added to the gradient")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.nesterov and self.momentum == 0.0:
            raise UsageError("optimizer.nesterov=true needs a momentum; set optimizer.momentum (--momentum 0.9)")


@optimizers.declare("nag", "torch_optimizers")
@dataclass
class NagConfig(OptimizerConfig):
    """Momentum and learning rate are those of Gehring et al. 2017, arXiv:1705.03122, section 4.2."""

    default_rate = 0.25
    nesterov = True

    lr: float | None = flag(None, help="Peak learning rate; null: 0.25")
    momentum: float = flag(0.99, help="Fraction of the previous step added to the next")
    weight_decay: float = flag(0.0, help="L2 penalty, added to the gradient")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum)
        if self.momentum == 0.0:
            raise UsageError("optimizer.momentum=0.0 makes nag plain gradient descent; use --optimizer sgd")


@optimizers.declare("adam", "torch_optimizers")
@dataclass
class AdamConfig(OptimizerConfig):
    """Betas and epsilon are those of "Attention Is All You Need", section 5.3."""

    default_rate = 5e-4

    lr: float | None = flag(None, help="Peak learning rate; null: 0.0005")
    betas: list[float] = option([0.9, 0.98], help="Decay of the two moment averages", flag="--adam-betas")
    eps: float = option(1e-9, help="Constant added to the root of the second moment", flag="--adam-eps")
    weight_decay: float = flag(0.0, help="L2 penalty, added to the gradient")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas, "--adam-betas 0.9,0.98")
        require_positive("optimizer", eps=self.eps)


@optimizers.declare("adamw", "torch_optimizers")
@dataclass
class AdamWConfig(AdamConfig):
    """Adam with decoupled weight decay."""

    weight_decay: float = flag(0.01, help="Fraction of a parameter subtracted in each update, times the learning rate")


@optimizers.declare("adam_then_sgd", "update_rules")
@dataclass
class AdamThenSgdConfig(AdamConfig):
    """The paper's rates and switch; its betas and epsilon are those of Adam's own paper."""

    default_rate = 2e-4

    lr: float | None = flag(None, help="Peak learning rate of Adam; null: 0.0002")
    betas: list[float] = option([0.9, 0.999], help="Decay of the two moment averages", flag="--adam-betas")
    eps: float = option(1e-8, help="Constant added to the root of the second moment", flag="--adam-eps")
    sgd_lr: float = flag(0.5, help="Peak learning rate of gradient descent")
    switch_update: int = flag(60_000, help="Number of updates with Adam")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rates(self.sgd_lr, self.weight_decay, name="sgd_lr")
        require_not_negative("optimizer", switch_update=self.switch_update)


@optimizers.declare("adafactor", "torch_optimizers")
@dataclass
class AdafactorConfig(OptimizerConfig):
    """Constants of the paper's section 9."""

    default_rate = 1e-2
    whole_matrices = True

    lr: float | None = flag(None, help="Maximum step relative to a parameter's size; null: 0.01")
    decay_rate: float = flag(-0.8, help="Exponent in the decay of the second moment: 1 - update^decay_rate")
    clip_threshold: float = flag(1.0, help="Maximum root mean square of a step, before the learning rate")
    min_scale: float = option(1e-3, help="Minimum size assumed for a parameter", flag="--adafactor-min-scale")
    weight_decay: float = flag(0.0, help="Fraction of a parameter subtracted in each update, times the learning rate")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_not_negative("optimizer", min_scale=self.min_scale)
        if not -10.0 <= self.decay_rate <= 0.0:
            raise UsageError(f"optimizer.decay_rate={self.decay_rate} must lie between -10 and 0 (--decay-rate -0.8)")
        if not 1.0 <= self.clip_threshold < math.inf:
            raise UsageError(f"optimizer.clip_threshold={self.clip_threshold} must be at least 1 (--clip-threshold 1)")


@optimizers.declare("lion", "update_rules")
@dataclass
class LionConfig(OptimizerConfig):
    """Section 5 of the paper recommends 1/10 to 1/3 of AdamW's learning rate, and 3 to 10 times its decay."""

    default_rate = 1e-4

    lr: float | None = flag(None, help="Peak learning rate; null: 0.0001")
    betas: list[float] = option(
        [0.9, 0.99], help="Fraction of the momentum in a step, and decay of the momentum", flag="--lion-betas"
    )
    weight_decay: float = flag(0.0, help="Fraction of a parameter subtracted in each update, times the learning rate")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        check_betas(self.betas, "--lion-betas 0.9,0.99")


@optimizers.declare("rmsprop", "update_rules")
@dataclass
class RmspropConfig(OptimizerConfig):
    """Constants of equations 38-41; the paper's values."""

    default_rate = 1e-4

    lr: float | None = flag(None, help="Peak learning rate; null: 0.0001")
    momentum: float = flag(0.9, help="Fraction of the previous step added to the next")
    decay: float = option(0.95, help="Decay of the averages of the gradient and of its square", flag="--rmsprop-decay")
    eps: float = option(
        1e-4, help="Constant added to the variance of the gradient, under the root", flag="--rmsprop-eps"
    )
    weight_decay: float = flag(0.0, help="L2 penalty, added to the gradient")

    def __post_init__(self) -> None:
        check_rates(self.lr, self.weight_decay)
        require_share("optimizer", momentum=self.momentum, decay=self.decay)
        require_positive("optimizer", eps=self.eps)


MOST_ITERATIONS = 99  # torch's limit

# The former default of `adamw_names`.
NAMES_OF_EARLIER_RUNS = ["*embedding*", "*positions*", "*slots*", "*first_*", "output.*", "criterion.*"]


@optimizers.declare("muon", "update_rules")
@dataclass
class MuonConfig(AdamWConfig):
    """Learning rate and weight decay of both rules; betas and epsilon of AdamW."""

    whole_matrices = True

    momentum: float = flag(0.95, help="Decay of the momentum (Nesterov's form)")
    iterations: int = option(5, help="Number of Newton-Schulz iterations per update", flag="--muon-iterations")
    adamw_names: list[str] | None = option(
        None,
        help="Name patterns of matrices for AdamW; null: matrices that do not map one hidden vector to another",
        flag="--muon-adamw",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share("optimizer", momentum=self.momentum)
        require_positive("optimizer", iterations=self.iterations)
        if self.iterations > MOST_ITERATIONS:
            raise UsageError(
                f"optimizer.iterations={self.iterations} must be at most {MOST_ITERATIONS}; the default is 5"
            )

    def rule_of(self, name: str, shape: Sequence[int], maps_hidden_vectors: bool) -> str:
        """Return the rule of a parameter; Muon needs a matrix with several rows and columns."""
        if self.adamw_names is None:
            chosen = maps_hidden_vectors
        else:
            chosen = not any(fnmatchcase(name, pattern) for pattern in self.adamw_names)
        return "muon" if chosen and len(shape) == 2 and min(shape) > 1 else "adamw"

    def resumed(self, stored: Mapping[str, Any]) -> MuonConfig:
        """Keep the former default of a stored run: it determines the state of each parameter."""
        had_former_default = stored.get("adamw_names") == NAMES_OF_EARLIER_RUNS
        return (
            replace(self, adamw_names=NAMES_OF_EARLIER_RUNS)
            if had_former_default and self.adamw_names is None
            else self
        )


@optimizers.declare("schedule_free_adamw", "torch_optimizers")
@dataclass
class ScheduleFreeAdamWConfig(AdamConfig):
    """Constants of the authors' package. The scheduler should only warm up."""

    default_rate = 2.5e-3
    schedule_free = True

    lr: float | None = flag(None, help="Learning rate after the warmup; null: 0.0025")
    betas: list[float] = option(
        [0.9, 0.999],
        help="Fraction of the average in the training weights, and decay of the second moment",
        flag="--adam-betas",
    )
    eps: float = option(1e-8, help="Constant added to the root of the second moment", flag="--adam-eps")
    weight_decay: float = flag(
        0.0, help="Fraction of the training weights subtracted in each update, times the learning rate"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.betas[0] == 0.0:
            raise UsageError(f"optimizer.betas={self.betas}: the first must be above 0 (--adam-betas 0.9,0.999)")

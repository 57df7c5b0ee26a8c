"""The options of sampling."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.option import option
from nmt.errors import UsageError
from nmt.search import searches
from nmt.search.rules_config import RuleConfig

_COLDEST = 1e-6  # below it quotients overflow single precision


@searches.declare("sampling")
@dataclass
class SamplingConfig(RuleConfig):
    """Sampling: each of --nbest translations is drawn token by token."""

    temperature: float = option(
        1.0, help="scores are divided by it: below 1 the probable becomes more probable", flag="--temperature"
    )
    topk: int | None = option(None, help="draw among the k most probable tokens; null: all", flag="--sampling-topk")
    topp: float | None = option(
        None, help="draw among the most probable tokens that reach this probability together", flag="--sampling-topp"
    )
    minp: float = option(
        0.0, help="draw among tokens at least this share as probable as the likeliest; 0: all", flag="--sampling-minp"
    )
    epsilon: float = option(0.0, help="draw among tokens at least this probable; 0: all", flag="--sampling-epsilon")
    seed: int = option(1, help="another number draws other translations", flag="--sampling-seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", temperature=self.temperature, topk=self.topk)
        if self.temperature < _COLDEST:
            raise UsageError(
                f"search.temperature={self.temperature} leaves nothing to chance: give at least {_COLDEST} "
                f"(--temperature), or search with --search greedy"
            )
        if self.topp is not None and not 0.0 < self.topp <= 1.0:
            raise UsageError(f"search.topp={self.topp} must be greater than 0 and at most 1 (--sampling-topp)")
        for name, value in (("minp", self.minp), ("epsilon", self.epsilon)):
            if not 0.0 <= value <= 1.0:
                raise UsageError(f"search.{name}={value} must be from 0 to 1 (--sampling-{name})")

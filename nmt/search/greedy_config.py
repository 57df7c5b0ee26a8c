"""The options of greedy search."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.search import searches
from nmt.search.rules_config import RuleConfig


@searches.declare("greedy")
@dataclass
class GreedyConfig(RuleConfig):
    """Greedy search: one hypothesis, extended by its most probable token."""

    @property
    def finds_at_most(self) -> int:
        return 1

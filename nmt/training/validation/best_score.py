"""The best validation so far, and when to give up hoping for a better one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.optim.improvement import is_better


class BestScore:
    """Follows one metric in its own direction; ``patience`` validations without a better value exhaust it."""

    def __init__(self, metric: str, *, higher_is_better: bool, patience: int | None = None) -> None:
        self.metric = metric
        self.higher_is_better = higher_is_better
        self.value: float | None = None
        self.update: int | None = None
        self.history: list[float] = []
        self._patience = patience
        self._without_improvement = 0

    def observe(self, value: float, update: int) -> bool:
        """Take note of a validation; True if it is the best so far. A value that is no number never is."""
        self.history.append(value)
        improved = is_better(value, self.value, higher_is_better=self.higher_is_better)
        if improved:
            self.value, self.update = value, update
        self._without_improvement = 0 if improved else self._without_improvement + 1
        return improved

    @property
    def exhausted(self) -> bool:
        return self._patience is not None and self._without_improvement >= self._patience

    def state(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "value": self.value,
            "update": self.update,
            "without_improvement": self._without_improvement,
            "history": self.history,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a stored state; one of another metric says nothing about this one and is left out."""
        if state["metric"] == self.metric:
            self.value, self.update = state["value"], state["update"]
            self._without_improvement = state["without_improvement"]
            self.history = list(state["history"])

"""When a run is validated, and which validation was its best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.config.sections import ValidationConfig
from nmt.optim.schedules import is_better
from nmt.training.loop.learner import Learner
from nmt.training.validation.validators import TranslationValidator, Validator, validate


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


@dataclass(frozen=True)
class Validation:
    """The validators of a run, and what came of them so far."""

    validators: Sequence[Validator]
    best: BestScore
    options: ValidationConfig
    learner: Learner
    seed: int

    def due(self, update: int, epoch: int, *, ends_epoch: bool, made: bool) -> bool:
        """``made``: whether the last update was, which was the ``update``-th then."""
        return due(self.options, update if made else None, epoch if ends_epoch else None)

    def __call__(self, update: int, stop: Callable[[], bool]) -> tuple[dict[str, float], bool]:
        """The figures, and whether they are the best so far."""
        with self.learner.evaluating(), self.learner.world.whole():
            scores = validate(self.validators, self.seed, update, stop)
        return scores, self.best.metric in scores and self.best.observe(scores[self.best.metric], update)

    @property
    def failures(self) -> Mapping[str, str]:
        """Metrics that could not be computed, and why."""
        return next((one.failures for one in self.validators if isinstance(one, TranslationValidator)), {})

    def ending(self) -> str | None:
        """Why validations end the run, or None."""
        if not self.best.exhausted:
            return None
        return f"{self.best.metric} did not improve in {self.options.patience} validations"


def due(options: ValidationConfig, update: int | None, epoch: int | None) -> bool:
    """Whether a validation follows the ``update``-th update, or the end of an ``epoch``; None: there was none."""
    by_updates = options.interval_updates is not None and update is not None and update % options.interval_updates == 0
    by_epochs = options.interval is not None and epoch is not None and epoch % options.interval == 0
    return by_updates or by_epochs

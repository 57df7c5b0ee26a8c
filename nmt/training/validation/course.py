"""When a run is validated, and which validation was its best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nmt.config.sections import ValidationConfig
from nmt.training.loop.learner import Learner
from nmt.training.validation.best_score import BestScore
from nmt.training.validation.validators import TranslationValidator, Validator, validate


class Validation:
    """The validators of a run, and what came of them so far."""

    def __init__(
        self, validators: Sequence[Validator], best: BestScore, options: ValidationConfig, learner: Learner, seed: int
    ) -> None:
        self.best = best
        self._validators = validators
        self._options = options
        self._learner = learner
        self._seed = seed

    def due(self, update: int, epoch: int, *, ends_epoch: bool, made: bool) -> bool:
        """``made``: whether the last update was, which was the ``update``-th then."""
        return due(self._options, update if made else None, epoch if ends_epoch else None)

    @property
    def validates(self) -> bool:
        return bool(self._validators)

    def __call__(self, update: int, stop: Callable[[], bool]) -> tuple[dict[str, float], bool]:
        """The figures, and whether they are the best so far."""
        with self._learner.evaluating(), self._learner.world.whole():
            scores = validate(self._validators, self._seed, update, stop)
        return scores, self.best.metric in scores and self.best.observe(scores[self.best.metric], update)

    @property
    def failures(self) -> Mapping[str, str]:
        """Metrics that could not be computed, and why."""
        return next((one.failures for one in self._validators if isinstance(one, TranslationValidator)), {})

    def ending(self) -> str | None:
        """Why validations end the run, or None."""
        if not self.best.exhausted:
            return None
        return f"{self.best.metric} did not improve in {self._options.patience} validations"


def due(options: ValidationConfig, update: int | None, epoch: int | None) -> bool:
    """Whether a validation follows the ``update``-th update, or the end of an ``epoch``; None: there was none."""
    by_updates = options.interval_updates is not None and update is not None and update % options.interval_updates == 0
    by_epochs = options.interval is not None and epoch is not None and epoch % options.interval == 0
    return by_updates or by_epochs

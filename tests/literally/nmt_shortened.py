"""A plugin that is installed while documented commands run: it makes them short, and leaves their words alone.

Command line, configuration, schedule and stored options are those of the command as it stands. Others are the model, built
in the small sizes of its own ``shrink``, and the length of training: two epochs, or a few updates, which then count as one.
What is to be saved every thousand updates is saved after a few. Operations are not counted, which would take longer than all
updates of such a run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nmt import engines
from nmt.config.sections import CheckpointConfig
from nmt.formats import exporting
from nmt.models import models
from nmt.training.checkpoints.store import Cadence
from nmt.training.loop.trainer import Trainer
from nmt.training.setup import trials

EPOCHS, UPDATES, BETWEEN_CHECKPOINTS = 2, 12, 4

_describe = engines.describe
_build, _ending, _rhythm, _due = models.build, Trainer.ending, Cadence.__init__, Cadence.due


def _small(config: Any, *parts: Any, **named_parts: Any) -> Any:
    return _build(config.shrink(), *parts, **named_parts)


def _described(config: Any, *parts: Any) -> Any:
    return _describe(config.shrink(), *parts)


def _early(trainer: Trainer) -> str | None:
    enough = trainer.state.position.epoch > EPOCHS or trainer.state.update >= UPDATES
    return _ending(trainer) or ("a test has seen enough" if enough else None)


def _often(cadence: Cadence, options: CheckpointConfig) -> None:
    updates = options.save_interval_updates
    _rhythm(cadence, replace(options, save_interval_updates=updates and min(updates, BETWEEN_CHECKPOINTS)))


def _due_too(cadence: Cadence, update: int, epoch: int, *, ends_epoch: bool, now: float) -> tuple[str, ...]:
    return _due(cadence, update, epoch, ends_epoch=ends_epoch or update >= UPDATES, now=now)


engines.describe = exporting.describe = _described
models.build = _small  # type: ignore[method-assign]
Trainer.ending = _early  # type: ignore[method-assign]
Cadence.__init__ = _often  # type: ignore[method-assign]
Cadence.due = _due_too  # type: ignore[method-assign]
trials.flops_per_token = lambda *_, **__: None  # type: ignore[assignment]

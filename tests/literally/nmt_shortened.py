"""A plugin that is installed while documented commands run: it makes them short, and leaves their words alone.

Command line, configuration, schedule and stored options are those of the command as it stands. Others are the model, built
in the small sizes of its own ``shrink``, and the length of training: two epochs, or a few updates, which then count as one.
Translations end after a few tokens; those of models that have learned nothing would reach the limit of their length.
What is to be saved every thousand updates is saved after a few. Operations are not counted, which would take longer than all
updates of such a run. A quantized export may differ by more: with few channels, rounding matters more.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from nmt import engines
from nmt.config.exchange import ExportConfig, Quantization
from nmt.config.sections import CheckpointConfig
from nmt.formats import exporting
from nmt.models import models
from nmt.search import constraints
from nmt.training.loop.trainer import Trainer
from nmt.training.setup import operations

EPOCHS, UPDATES, BETWEEN_CHECKPOINTS, TOKENS = 2, 12, 4, 10.0

_describe, _outline = engines.describe, engines.outline
_builder, _ending, _due = models.builder, Trainer.ending, CheckpointConfig.reasons_to_save
_allowed = ExportConfig.allowed


def _small(kind: type) -> Any:
    build = _builder(kind)

    def build_small(config: Any, *parts: Any, **named_parts: Any) -> Any:
        for option in fields(config):  # ``shrink`` replaces options unread, and unread ones would be refused
            getattr(config, option.name)
        return build(config.shrink(), *parts, **named_parts)

    return build_small


def _described(config: Any, *parts: Any) -> Any:
    return _describe(config.shrink(), *parts)


def _outlined(config: Any, *parts: Any) -> Any:
    return _outline(config.shrink(), *parts)


def _early(trainer: Trainer) -> str | None:
    enough = trainer.state.position.epoch > EPOCHS or trainer.state.update >= UPDATES
    return _ending(trainer) or ("a test has seen enough" if enough else None)


def _due_often(options: CheckpointConfig, update: int | None, epoch: int | None, minutes: float) -> tuple[str, ...]:
    """As after an epoch once there were enough updates."""
    updates = options.save_interval_updates
    options = replace(options, save_interval_updates=updates and min(updates, BETWEEN_CHECKPOINTS))
    ends_epoch = update is not None and update >= UPDATES
    return _due(options, update, epoch or (options.save_interval if ends_epoch else None), minutes)


def _allowed_of_few_channels(config: ExportConfig) -> float:
    default = config.tolerance is None and config.quantization is not Quantization.float32
    return (10 if default else 1) * _allowed(config)


engines.outline = _outlined
engines.describe = exporting.describe = _described
engines.outline = _outlined
models.builder = _small  # type: ignore[method-assign]
Trainer.ending = _early  # type: ignore[method-assign]
CheckpointConfig.reasons_to_save = _due_often  # type: ignore[method-assign]
ExportConfig.allowed = _allowed_of_few_channels  # type: ignore[method-assign]
constraints._UNLIMITED = TOKENS
operations.flops_per_token = lambda *_, **__: None  # type: ignore[assignment]

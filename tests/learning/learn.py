"""Training on a generated task, from a model's configuration to the share of validation lines that come out right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmt.config.sections import BatchingConfig, CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.optim.adam import AdamConfig
from nmt.optim.inverse_sqrt import InverseSqrtConfig
from nmt.training.assemble import train


def exact_match(
    tiny_run: Callable[..., TrainConfig], corpus: Path, run: Path, model: Any, rate: float, updates: int, seed: int
) -> float:
    """The best exact match of a run, in per cent."""
    config = tiny_run(
        data=[str(corpus)],
        model=model,
        optimizer=AdamConfig(lr=rate),
        scheduler=InverseSqrtConfig(60),
        batching=BatchingConfig(max_tokens=512),
        training=TrainingConfig(max_update=updates, clip_norm=1.0),
        checkpoint=CheckpointConfig(save_dir=str(run), save_interval=None),
        validation=ValidationConfig(
            interval=None, interval_updates=100, metrics=["exact"], samples=0, best_metric="exact"
        ),
        seed=seed,
    )
    best = train(config).best
    assert best is not None
    return best

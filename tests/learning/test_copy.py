"""Both architectures learn to copy: the smallest task that needs all of encoder, attention, decoder and search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import BatchingConfig, CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.models.lstm import LSTMConfig
from nmt.models.transformer import TransformerConfig
from nmt.optim.adam import AdamConfig
from nmt.optim.inverse_sqrt import InverseSqrtConfig
from nmt.training.assemble import train

MODELS = {
    "transformer": (TransformerConfig(2, 2, d_model=32, d_ff=64, num_heads=4, dropout=0.0), 0.006, 500),
    "lstm": (LSTMConfig(embedding_size=32, hidden_size=64, bidirectional=True, dropout=0.0), 0.01, 300),
}


@pytest.fixture(scope="module")
def corpus(make_copy_corpus: Callable[..., Path]) -> Path:
    return make_copy_corpus(train=2000, valid=200)


@pytest.mark.parametrize("name", MODELS)
def test_copying_is_learnt(corpus: Path, tiny_run: Callable[..., TrainConfig], tmp_path: Path, name: str) -> None:
    model, rate, updates = MODELS[name]
    parts: dict[str, Any] = {
        "data": [str(corpus)],
        "model": model,
        "optimizer": AdamConfig(lr=rate),
        "scheduler": InverseSqrtConfig(60),
        "batching": BatchingConfig(max_tokens=512),
        "training": TrainingConfig(max_update=updates),
        "checkpoint": CheckpointConfig(save_dir=str(tmp_path / "run"), save_interval=None),
        "validation": ValidationConfig(
            interval=None, interval_updates=100, metrics=["exact"], samples=0, best_metric="exact"
        ),
    }
    result = train(tiny_run(**parts))
    assert result.best is not None and result.best >= 95.0

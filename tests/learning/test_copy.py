"""Both architectures learn to copy: the smallest task that needs all of encoder, attention, decoder and search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.sections import TrainConfig
from nmt.models.lstm import LSTMConfig
from nmt.models.transformer import TransformerConfig
from tests.learning.learn import exact_match

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
    assert exact_match(tiny_run, corpus, tmp_path / "run", model, rate, updates, seed=1) >= 95.0

"""Presets learn to copy and to reverse, whatever the seed. Sizes are reduced; structure and options stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config.presets import preset_names
from nmt.config.sections import TrainConfig
from nmt.models.transformer import TransformerConfig
from nmt.testing.subjects import load_preset
from tests.learning.learn import exact_match

pytestmark = pytest.mark.nightly

SEEDS = (1, 2, 3)
ATTENTIVE = ("lstm_attention", "lstm_bidirectional", "lstm_tiny")  # of one width, whose sizes `reduced` knows


def reduced(config: Any) -> tuple[Any, float]:
    """A size that learns in seconds, and the rate that suits it."""
    if isinstance(config, TransformerConfig):
        layers = {"encoder_layers": 2, "decoder_layers": 2}
        return replace(config, **layers, d_model=32, d_ff=64, num_heads=4, dropout=0.0), 0.006
    return replace(config, embedding_size=32, hidden_size=64, dropout=0.0), 0.01


@pytest.fixture(scope="module", params=["copy", "reverse"])
def corpus(request: pytest.FixtureRequest, make_copy_corpus: Callable[..., Path]) -> Path:
    return make_copy_corpus(reverse=request.param == "reverse", train=2000, valid=200)


PRESETS = [preset for preset in preset_names("model") if preset.startswith("transformer") or preset in ATTENTIVE]


@pytest.mark.parametrize("preset", PRESETS)
def test_two_of_three_seeds_learn_the_task(
    corpus: Path, tiny_run: Callable[..., TrainConfig], tmp_path: Path, preset: str
) -> None:
    model, rate = reduced(load_preset(preset))
    best = [exact_match(tiny_run, corpus, tmp_path / str(seed), model, rate, 500, seed) for seed in SEEDS]
    assert sum(score >= 95.0 for score in best) >= 2, best

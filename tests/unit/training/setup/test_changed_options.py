"""What of a configuration its user chose."""

from __future__ import annotations

from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.models.transformer.transformer import TransformerConfig
from nmt.training.checkpoints.fingerprint import changed_options


def test_options_that_differ_from_their_defaults_are_told_from_the_others() -> None:
    config = TrainConfig(data=["x"], model=TransformerConfig(d_model=64), training=TrainingConfig(max_update=7), seed=1)
    assert changed_options(config) == {
        "data": ["x"],
        "model": "transformer",
        "model.d_model": 64,
        "training.max_update": 7,
    }

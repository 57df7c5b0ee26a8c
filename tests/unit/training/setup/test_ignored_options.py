"""Options that have no effect in a model: a run does not begin with them; one that began so is loaded and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.errors import UsageError
from nmt.models.loading import load_model
from nmt.models.transformer.config import TransformerConfig
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.setup import parts


def with_an_ignored_option() -> TransformerConfig:
    """Sinusoids have no longest sentence."""
    return TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, max_positions=33)


def test_a_run_with_an_option_that_its_model_ignores_does_not_begin(
    tiny_run: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="model.max_positions=33 has no effect in this model; omit it .*--arch"):
        train(tiny_run(model=with_an_ignored_option()))
    assert not checkpoints_in(tmp_path / "run")


def test_a_run_that_began_with_an_ignored_option_is_loaded_and_resumed_with_a_warning(
    tiny_run: Callable[..., TrainConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = "model.max_positions=33 has no effect in this model"
    with monkeypatch.context() as earlier:
        earlier.setattr(parts, "check_ignored", lambda model, *, resumes: None)
        train(tiny_run(model=with_an_ignored_option(), training=TrainingConfig(max_update=4)))
    assert said not in caplog.text
    assert load_model(tmp_path / "run", torch.device("cpu")).module.ignored == ("model.max_positions=33",)
    assert [record.levelname for record in caplog.records if said in record.message] == ["WARNING"]
    caplog.clear()
    assert train(tiny_run(model=with_an_ignored_option(), training=TrainingConfig(max_update=6))).update == 6
    assert [record.levelname for record in caplog.records if said in record.message] == ["WARNING"]

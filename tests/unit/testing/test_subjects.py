"""What the conformance suite examines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt.errors import UsageError
from nmt.models import models
from nmt.models.transformer.transformer import TransformerConfig
from nmt.testing import subjects as module
from nmt.testing.subjects import Subject, load_preset, subject, subjects

PRESETS = {"transformer_tiny", "transformer_base", "transformer_big", "lstm_attention", "lstm_tiny"}


@pytest.mark.slow
def test_every_registered_model_and_every_preset_is_a_subject() -> None:
    assert {*models.names(), *PRESETS} <= {subject.name for subject in subjects()}


def test_a_preset_states_its_difference_from_the_schema() -> None:
    assert load_preset("transformer_base") == TransformerConfig()
    assert load_preset("transformer_big") == TransformerConfig(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)
    assert load_preset("transformer_tiny") == TransformerConfig(
        encoder_layers=4, decoder_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3
    )


def test_a_preset_may_extend_a_preset_of_a_plugin_or_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wide.yaml").write_text("defaults:\n  - transformer_tiny\n  - _self_\nd_ff: 999\n")
    monkeypatch.setattr(module, "preset_folders", lambda: (tmp_path,))
    config = load_preset("wide")
    assert (config.d_ff, config.d_model) == (999, 128)
    assert "wide" in {subject.name for subject in subjects()}


def test_equal_seeds_give_equal_models_and_leave_the_random_state_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, two, other = (subject("transformer_tiny").model(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert not any(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_no_parameter_of_a_subject_is_left_at_zero() -> None:
    for parameter in subject("transformer_tiny").model().parameters():
        assert (parameter != 0).all()


def test_a_configuration_that_cannot_shrink_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TransformerConfig, "shrink")
    with pytest.raises(UsageError, match=r"TransformerConfig.*has no shrink\(\)"):
        subject("transformer_base")


def test_a_subject_shows_its_name() -> None:
    assert str(Subject("mine", TransformerConfig())) == "mine"

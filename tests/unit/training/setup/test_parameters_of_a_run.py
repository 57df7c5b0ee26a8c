"""Runs that freeze parameters or scale their rates, from their start over an interruption to their end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.sections import Decayed, ParametersConfig, TrainConfig, TrainingConfig
from nmt.errors import StorageError, UsageError
from nmt.models.transformer.lightconv_config import LightConvConfig
from nmt.optim.config import NAMES_OF_EARLIER_RUNS, AdamWConfig, MuonConfig
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.checkpoints import store as store_module

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
FROZEN = ParametersConfig(freeze=["encoder.*"])


def weights(run: Path, position: int = -1) -> dict[str, Tensor]:
    return read_checkpoint(checkpoints_in(run)[position]).model


def states(run: Path) -> set[int]:
    """Numbers of the parameters that the last optimizer state has anything of."""
    training = read_checkpoint(checkpoints_in(run)[-1], training=True).training
    assert training is not None
    return {int(name.split(".")[1]) for name in training.tensors if name.startswith("optimizer.")}


def test_what_is_frozen_stays_and_has_no_state_and_all_else_learns(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(parameters=FROZEN))
    first, last = weights(tmp_path / "run", 0), weights(tmp_path / "run")
    moved = {name for name in last if not torch.equal(first[name], last[name])}
    assert moved == {name for name in last if not name.startswith("encoder.")} and len(moved) < len(last)
    assert len(states(tmp_path / "run")) == len(moved)


@pytest.mark.parametrize(
    "parameters",
    [FROZEN, ParametersConfig(lr_scales=["encoder.*=0.1", "*bias=2"], decay=Decayed.matrices)],
    ids=["frozen", "grouped"],
)
def test_an_interrupted_run_with_groups_goes_on_exactly(
    tiny_run: MakeConfig, tmp_path: Path, parameters: ParametersConfig
) -> None:
    options = {"parameters": parameters, "optimizer": AdamWConfig(lr=0.01, weight_decay=0.1)}
    for updates in (4, 12):
        train(tiny_run(**options, training=TrainingConfig(max_update=updates)))
    parts = weights(tmp_path / "run")
    whole = tiny_run(**options)
    whole.checkpoint.save_dir = str(tmp_path / "whole")
    train(whole)
    assert all(torch.equal(tensor, parts[name]) for name, tensor in weights(tmp_path / "whole").items())


def test_another_frozen_set_is_refused_when_a_run_goes_on(tiny_run: MakeConfig) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    with pytest.raises(UsageError, match=r"parameters.freeze: null -> \['encoder.\*'\].*--reset"):
        train(tiny_run(parameters=FROZEN))


def test_with_reset_the_frozen_set_may_change_and_every_other_state_stays(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt.training")
    train(tiny_run(parameters=FROZEN, training=TrainingConfig(max_update=4)))
    few = len(states(tmp_path / "run"))
    config = tiny_run(parameters=ParametersConfig(freeze=["decoder.*"]))
    config.checkpoint.reset = True
    train(config)
    encoder, decoder = (sum(name.startswith(side) for name in weights(tmp_path / "run")) for side in ("enc", "dec"))
    assert f"{encoder} new parameters start without one, that of {decoder} removed parameters is dropped" in caplog.text
    assert len(states(tmp_path / "run")) == few + encoder - decoder
    first, last = weights(tmp_path / "run", 0), weights(tmp_path / "run")
    assert {name.startswith("decoder.") for name in last if torch.equal(first[name], last[name])} == {True}


def test_a_pattern_without_a_parameter_stops_the_run_before_it_starts(tiny_run: MakeConfig) -> None:
    with pytest.raises(UsageError, match=r"parameters.freeze: enc matches none of these parameters"):
        train(tiny_run(parameters=ParametersConfig(freeze=["enc"])))


@pytest.mark.parametrize("reset", [False, True])
def test_a_muon_run_that_began_by_names_resumes_by_names_unless_the_optimizer_may_change(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, reset: bool
) -> None:
    """The kernels of lightweight convolutions have Muon's state by names, and AdamW's by what they are."""
    model = LightConvConfig(1, 1, d_model=16, d_ff=24, num_heads=2, encoder_kernels=[3], decoder_kernels=[3])
    began = {"model": model, "optimizer": MuonConfig(lr=0.01, adamw_names=NAMES_OF_EARLIER_RUNS)}
    train(tiny_run(**began, training=TrainingConfig(max_update=4)))
    resumed = tiny_run(model=model, optimizer=MuonConfig(lr=0.01))
    resumed.checkpoint.reset_optimizer = reset
    caplog.set_level(logging.INFO, "nmt.training")
    train(resumed)
    assert ("kept the update rule that the run began with" in caplog.text) != reset
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True)
    assert stored.training is not None
    rules = {
        name: group["rule"]
        for group in stored.training.values["optimizer"]["groups"]
        for name in group["param_names"]
        if "kernels" in name
    }
    assert set(rules.values()) == {"adamw" if reset else "muon"} and len(rules) == 2
    assert stored.config["optimizer"]["adamw_names"] == (None if reset else NAMES_OF_EARLIER_RUNS)
    if not reset:
        whole = tiny_run(**began)
        whole.checkpoint.save_dir = str(tmp_path / "whole")
        train(whole)
        parts = weights(tmp_path / "run")
        assert all(torch.equal(tensor, parts[name]) for name, tensor in weights(tmp_path / "whole").items())


def test_a_run_that_keeps_its_update_rule_resumes_from_the_fallback_folder_too(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LightConvConfig(1, 1, d_model=16, d_ff=24, num_heads=2, encoder_kernels=[3], decoder_kernels=[3])
    names = MuonConfig(lr=0.01, adamw_names=NAMES_OF_EARLIER_RUNS)
    train(tiny_run(model=model, optimizer=names, training=TrainingConfig(max_update=4)))

    def resumed(max_update: int) -> TrainConfig:
        config = tiny_run(model=model, optimizer=MuonConfig(lr=0.01), training=TrainingConfig(max_update=max_update))
        config.checkpoint.fallback_dir = str(tmp_path / "spare")
        return config

    write = store_module.write_checkpoint

    def elsewhere(path: Path, **parts: Any) -> None:
        if path.parent == tmp_path / "run":
            raise StorageError("cannot write: No space left on device")
        write(path, **parts)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_checkpoint", elsewhere)
        spared = train(resumed(8)).checkpoint
    assert spared is not None and (tmp_path / "spare") in spared.parents
    assert read_checkpoint(spared).config["optimizer"]["adamw_names"] == NAMES_OF_EARLIER_RUNS
    assert train(resumed(12)).update == 12

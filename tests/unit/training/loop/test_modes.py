"""Optimizers with two kinds of weights: which are stored, and that switching never changes a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.sections import CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.errors import DataError
from nmt.optim.config import AdamConfig, ScheduleFreeAdamWConfig
from nmt.optim.schedules import ConstantConfig
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.loop.learner import Step
from nmt.training.loop.optimizer_state import evaluation_mode, resume_training
from nmt.training.loop.trainer import Trainer

Make = Callable[..., Any]
needs_schedulefree = pytest.mark.skipif(
    importlib.util.find_spec("schedulefree") is None, reason="the extra schedulefree is not installed"
)


class Thirds(torch.optim.SGD):
    """Evaluates at a third of the training weights; going there and back rounds."""

    training = False

    @torch.no_grad()
    def train(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1.0 if self.training or not self.state[parameter] else 3.1)
        self.training = True

    @torch.no_grad()
    def eval(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.div_(3.1 if self.training and self.state[parameter] else 1.0)
        self.training = False


def weights(step: Step) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}


def trained(
    make_trainer: Make, step: Step, updates: int, *, restored: StoredCheckpoint | None = None, **parts: Any
) -> None:
    optimizer = Thirds(step.named_parameters(), lr=0.1, momentum=0.9)
    limits = TrainingConfig(max_update=updates)
    trainer: Trainer = make_trainer(step=step, optimizer=optimizer, limits=limits, **parts)
    if restored is not None:
        trainer.restore(ResumePoint.of(restored))
    trainer.run()


def last_checkpoint(folder: Path) -> StoredCheckpoint:
    return read_checkpoint(checkpoints_in(folder / "run")[-1], training=True)


def test_a_run_does_not_depend_on_how_often_it_is_validated_and_saved(make_trainer: Make, make_step: Make) -> None:
    often, seldom = make_step(), make_step()
    trained(make_trainer, seldom, 5)
    often_saved = CheckpointConfig(save_interval=None, save_interval_updates=1)
    validation = ValidationConfig(interval=None, interval_updates=1)
    trained(make_trainer, often, 5, save=often_saved, validation=validation, validators=[lambda stop: {"loss": 1.0}])
    expected = weights(seldom)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(often).items())


def test_going_on_from_a_checkpoint_of_the_evaluated_weights_repeats_the_uninterrupted_run(
    make_trainer: Make, make_step: Make, tmp_path: Path
) -> None:
    whole, first, second = make_step(), make_step(), make_step(seed=2)
    trained(make_trainer, first, 3)
    stored = last_checkpoint(tmp_path)
    for name, tensor in weights(first).items():
        torch.testing.assert_close(stored.model[name.removeprefix("model.")], tensor / 3.1)
    trained(make_trainer, second, 6, restored=stored)
    trained(make_trainer, whole, 6)
    expected = weights(whole)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(second).items())


def test_optimizers_with_one_kind_of_weights_store_them_once() -> None:
    with evaluation_mode(torch.optim.SGD([torch.ones(2)], lr=0.1)) as training_weights:
        assert training_weights == {}


def test_training_weights_of_other_parameters_are_refused() -> None:
    with pytest.raises(DataError, match="training weights are for other parameters"):
        resume_training(Thirds([torch.ones(2)], lr=0.1), {"0": torch.ones(3)}, {0: 0})


def stored_in(folder: Path, update: int) -> StoredCheckpoint:
    (path,) = (path for path in checkpoints_in(folder) if path.name.endswith(f"{update:08d}"))
    return read_checkpoint(path, training=True)


@needs_schedulefree
def test_a_schedule_free_run_goes_on_exactly_and_stores_the_average(
    tiny_run: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    options = {"optimizer": ScheduleFreeAdamWConfig(lr=0.01), "scheduler": ConstantConfig(3)}
    for updates in (5, 12):
        train(tiny_run(**options, training=TrainingConfig(max_update=updates)))
    whole = tiny_run(**options, validation=ValidationConfig(interval=None, samples=0))
    whole.checkpoint = CheckpointConfig(save_dir=str(tmp_path / "whole"), save_interval=None)
    train(whole)
    interrupted, straight = (stored_in(tmp_path / name, 12) for name in ("run", "whole"))
    assert all(torch.equal(tensor, interrupted.model[name]) for name, tensor in straight.model.items())
    assert straight.training is not None and interrupted.training is not None
    for name, tensor in straight.training.tensors.items():
        assert torch.equal(tensor, interrupted.training.tensors[name]), name
    plain, y = (straight.training.tensors[name] for name in ("optimizer.0.z", "training_weights.0"))
    names = [group["param_names"] for group in straight.training.values["optimizer"]["groups"]]
    average = straight.model[names[0][0].removeprefix("model.")]
    torch.testing.assert_close(y, 0.9 * average + 0.1 * plain)
    assert not torch.equal(y, average)


@needs_schedulefree
def test_after_a_change_of_options_a_schedule_free_run_goes_on_from_the_average(
    tiny_run: Callable[..., TrainConfig], caplog: pytest.LogCaptureFixture
) -> None:
    schedule = {"scheduler": ConstantConfig(3)}
    train(tiny_run(optimizer=ScheduleFreeAdamWConfig(lr=0.01), training=TrainingConfig(max_update=5), **schedule))
    for number, optimizer in enumerate((ScheduleFreeAdamWConfig(lr=0.02), AdamConfig(lr=0.01)), 1):
        config = tiny_run(optimizer=optimizer, training=TrainingConfig(max_update=5 + number), **schedule)
        config.checkpoint.reset = True
        with caplog.at_level("INFO", "nmt.training"):
            assert train(config).update == 5 + number
        assert "reset the optimizer to the averaged weights" in caplog.text

"""The moving average of the parameters: what it is, what is stored, and that a run with it goes on exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from nmt.config.choices import Precision
from nmt.config.sections import (
    CheckpointConfig,
    DeviceConfig,
    ParametersConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.errors import UsageError
from nmt.optim import optimizers
from nmt.optim.config import AdamConfig, AdamThenSgdConfig, MuonConfig, ScheduleFreeAdamWConfig, SgdConfig
from nmt.optim.moving_average import MovingAverage
from nmt.optim.schedules import ConstantConfig
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop.optimizer_state import evaluation_mode

pytestmark = pytest.mark.slow  # whole runs

Make = Callable[..., Any]
MakeConfig = Callable[..., TrainConfig]


def reference(weights: list[Tensor], decay: float) -> Tensor:
    """The definition, over the weights before the first update and after each."""
    average = weights[0].double()
    for update, weight in enumerate(weights[1:], 1):
        kept = min(decay, (1 + update) / (10 + update))
        average = kept * average + (1 - kept) * weight.double()
    return average


@pytest.mark.parametrize("decay", [0.3, 0.999])
@pytest.mark.parametrize(
    "config",
    [
        SgdConfig(lr=0.1),
        AdamConfig(lr=0.1),
        AdamThenSgdConfig(lr=0.1, switch_update=5),
        MuonConfig(lr=0.1),
    ],
    ids=lambda config: optimizers.name_of(type(config)),
)
def test_it_is_the_average_of_the_plain_optimizers_course(config: Any, decay: float) -> None:
    courses: list[list[Tensor]] = []
    for averaged in (False, True):
        torch.manual_seed(1)
        parameter = Parameter(torch.randn(3, 4))
        optimizer = optimizers.build(config, [{"params": [("weight", parameter)]}])
        if averaged:
            optimizer = MovingAverage(optimizer, decay)
            optimizer.train()
        course = [parameter.detach().clone()]
        for _ in range(12):
            parameter.grad = torch.randn(3, 4)
            optimizer.step()
            course.append(parameter.detach().clone())
        courses.append(course)
    assert all(torch.equal(plain, averaged) for plain, averaged in zip(*courses, strict=True))
    assert isinstance(optimizer, MovingAverage)
    optimizer.eval()
    torch.testing.assert_close(parameter.detach().double(), reference(courses[0], decay), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(parameter, courses[0][-1])


def test_evaluation_ends_with_the_training_weights_bit_for_bit() -> None:
    parameter = Parameter(torch.tensor([1.0, 2.0]))
    optimizer = MovingAverage(torch.optim.SGD([("weight", parameter)], lr=0.1), 0.9)
    optimizer.train()
    parameter.grad = torch.ones(2)
    optimizer.step()
    before = parameter.detach().clone()
    with evaluation_mode(optimizer) as training_weights:
        average = parameter.detach().clone()
        assert torch.equal(training_weights["0"], before) and not torch.equal(average, before)
    assert torch.equal(parameter, before)
    with evaluation_mode(optimizer):
        assert torch.equal(parameter, average)


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.1, math.nan])
def test_a_decay_that_averages_nothing_is_refused(decay: float) -> None:
    with pytest.raises(UsageError, match=r"training.ema_decay=.* between 0 and 1"):
        TrainingConfig(max_update=1, ema_decay=decay)


def test_an_optimizer_that_averages_is_refused() -> None:
    class Averaging(torch.optim.SGD):
        def train(self) -> None: ...

        def eval(self) -> None: ...

    with pytest.raises(UsageError, match="averages weights itself"):
        MovingAverage(Averaging([torch.ones(1)], lr=0.1), 0.9)


def test_with_a_schedule_free_optimizer_it_is_refused_before_anything_is_opened(tiny_run: MakeConfig) -> None:
    config = tiny_run(
        optimizer=ScheduleFreeAdamWConfig(), scheduler=ConstantConfig(), training=TrainingConfig(12, ema_decay=0.9)
    )
    with pytest.raises(UsageError, match=r"training.ema_decay=0.9, but this optimizer averages weights itself"):
        train(config)


def limits(updates: int, decay: float | None = 0.8) -> TrainingConfig:
    return TrainingConfig(max_update=updates, ema_decay=decay)


def stored_in(folder: Path, update: int) -> StoredCheckpoint:
    (path,) = (path for path in checkpoints_in(folder) if path.name.endswith(f"{update:08d}"))
    return read_checkpoint(path, training=True)


def training_weights(stored: StoredCheckpoint) -> dict[str, Tensor]:
    """By the names of the model."""
    assert stored.training is not None
    names = [name for group in stored.training.values["optimizer"]["groups"] for name in group["param_names"]]
    tensors = stored.training.tensors
    return {name.removeprefix("model."): tensors[f"training_weights.{at}"] for at, name in enumerate(names)}


def assert_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_an_interrupted_run_goes_on_exactly(tiny_run: MakeConfig, tmp_path: Path, precision: Precision) -> None:
    options = {"device": DeviceConfig("cpu", precision)}
    for updates in (5, 12):
        train(tiny_run(training=limits(updates), **options))
    whole = tiny_run(training=limits(12), validation=ValidationConfig(interval=None, samples=0), **options)
    whole.checkpoint = CheckpointConfig(save_dir=str(tmp_path / "whole"), save_interval=None)
    train(whole)
    interrupted, straight = (stored_in(tmp_path / name, 12) for name in ("run", "whole"))
    assert_same(interrupted.model, straight.model)
    assert interrupted.training is not None and straight.training is not None
    assert_same(interrupted.training.tensors, straight.training.tensors)


def test_a_run_stores_the_average_of_the_weights_that_it_would_have_without(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    start = tiny_run(training=limits(4, None))
    start.checkpoint = CheckpointConfig(save_dir=str(tmp_path / "start"))
    train(start)
    for name, decay in (("plain", None), ("averaged", 0.8)):
        config = tiny_run(training=limits(8, decay))
        config.checkpoint = CheckpointConfig(str(tmp_path / name), save_interval=None, save_interval_updates=1)
        config.checkpoint.finetune_from_model = str(start.checkpoint.save_dir)  # the weights before update 1 are known
        train(config)
    courses = [stored_in(tmp_path / "start", 4), *(stored_in(tmp_path / "plain", update) for update in range(1, 9))]
    averaged = stored_in(tmp_path / "averaged", 8)
    assert_same(training_weights(averaged), courses[-1].model)
    for name, tensor in averaged.model.items():
        expected = reference([stored.model[name] for stored in courses], 0.8).float()
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


def test_a_skipped_update_does_not_count(make_trainer: Make, make_step: Make) -> None:
    step = make_step()
    parameters = dict(step.named_parameters())
    optimizer = MovingAverage(torch.optim.SGD(step.named_parameters(), lr=0.1), 0.5)
    course = [{name: parameter.detach().clone() for name, parameter in parameters.items()}]
    spoiled = iter([False, True, True, False, False])

    def spoil(gradient: Tensor) -> Tensor:
        return gradient * math.nan if next(spoiled) else gradient

    class Watching:
        def __init__(self, update: int) -> None: ...

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            course.append({name: parameter.detach().clone() for name, parameter in parameters.items()})

    next(iter(parameters.values())).register_hook(spoil)
    make_trainer(step=step, optimizer=optimizer, limits=TrainingConfig(max_update=3), around_update=Watching).run()
    assert len(course) == 6 and optimizer.param_groups[0]["averaged_updates"] == 3
    made = [course[index] for index in (0, 1, 4, 5)]
    optimizer.eval()
    for name, parameter in parameters.items():
        expected = reference([weights[name] for weights in made], 0.5).float()
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("before", "after"), [(0.8, 0.9), (0.8, None), (None, 0.8)])
def test_another_decay_is_refused_when_a_run_goes_on(
    tiny_run: MakeConfig, before: float | None, after: float | None
) -> None:
    train(tiny_run(training=limits(4, before)))
    shown = "null" if before is None else before, "null" if after is None else after
    with pytest.raises(UsageError, match=rf"training.ema_decay: {shown[0]} -> {shown[1]}.*--reset"):
        train(tiny_run(training=limits(5, after)))


def continued(tiny_run: MakeConfig, updates: int, decay: float | None, **options: Any) -> None:
    config = tiny_run(training=limits(updates, decay), **options)
    config.checkpoint.reset = True
    train(config)


def test_with_reset_switching_it_on_or_off_changes_nothing_in_the_course(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=limits(4, None)))
    continued(tiny_run, 6, 0.8)
    average, weights = _both(tmp_path, 6)
    assert not any(torch.equal(average[name], tensor) for name, tensor in weights.items())
    continued(tiny_run, 8, None)
    plain = tiny_run(training=limits(8, None))
    plain.checkpoint = CheckpointConfig(save_dir=str(tmp_path / "plain"))
    train(plain)
    assert_same(stored_in(tmp_path / "run", 8).model, stored_in(tmp_path / "plain", 8).model)


def _both(folder: Path, update: int) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    stored = stored_in(folder / "run", update)
    return stored.model, training_weights(stored)


def test_with_reset_other_options_of_the_optimizer_leave_average_weights_and_moments(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    train(tiny_run(training=limits(4)))
    nothing = ParametersConfig(lr_scales=["encoder.*=0.5"])  # other groups, other numbers
    continued(tiny_run, 5, 0.8, optimizer=AdamConfig(lr=1e-30), parameters=nothing)
    (before, weights), (after, still) = _both(tmp_path, 4), _both(tmp_path, 5)
    for name, tensor in weights.items():
        torch.testing.assert_close(still[name], tensor, rtol=0, atol=1e-12)  # the rate is nearly nothing
        average = before[name] * 6 / 15 + tensor * 9 / 15  # the counter has gone on: the fifth update
        torch.testing.assert_close(after[name], average, rtol=1e-5, atol=1e-6)
    training = stored_in(tmp_path / "run", 5).training
    assert training is not None and {int(training.tensors[f"optimizer.{n}.step"]) for n in range(len(weights))} == {5}

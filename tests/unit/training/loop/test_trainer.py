"""The training step and the loop around it, with parts made for each test."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.sections import CheckpointConfig, TrainingConfig, ValidationConfig
from nmt.data.batching.batch import Batch
from nmt.data.corpus.folder import Split
from nmt.distributed.world import World
from nmt.errors import DeviceError, NMTError
from nmt.optim import Progress
from nmt.reporting.run_record import read_events
from nmt.reporting.stopwatch import CHECKPOINTS, COMPUTING, READING, VALIDATION, WAITING, Stopwatch
from nmt.storage.checkpoints import read_checkpoint, read_info
from nmt.storage.run_folder import checkpoints_in, pointed
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.loop import updater as updater_module
from nmt.training.loop.batches import BatchReader, ReadAhead, read_batch
from nmt.training.loop.learner import Step
from nmt.training.loop.trainer import Trainer
from nmt.training.loop.validation import BestScore

Make = Callable[..., Any]


def weights(step: Step) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}


def trained(make_trainer: Make, step: Step, **parts: Any) -> dict[str, Tensor]:
    """The parameters after the updates that ``parts`` ask for."""
    make_trainer(step=step, **parts).run()
    return weights(step)


def same(one: dict[str, Tensor], other: dict[str, Tensor], **tolerance: float) -> bool:
    if tolerance:
        return all(torch.allclose(one[name], other[name], **tolerance) for name in one)
    return all(torch.equal(one[name], other[name]) for name in one)


def gradient_per_token(step: Step, split: Split, sentences: list[int]) -> dict[str, Tensor]:
    """Of the mean over all target tokens, computed one sentence at a time."""
    tokens = sum(len(split.target(index)) for index in sentences)
    total = sum(step(read_batch(split, torch.tensor([index]).numpy())).loss_sum for index in sentences)
    names, parameters = zip(*step.named_parameters())
    return dict(zip(names, torch.autograd.grad(total / tokens, parameters)))


def test_micro_batches_of_any_sizes_make_the_update_of_one_large_batch(
    make_trainer: Make, make_step: Make, make_split: Make
) -> None:
    split = make_split(6)
    pieces = trained(make_trainer, make_step(), split=split, updates=[[[0], [1, 2, 3], [4, 5]]])
    whole = trained(make_trainer, make_step(), split=split, updates=[[[0, 1, 2, 3, 4, 5]]])
    assert same(pieces, whole, rtol=1e-4, atol=1e-6)
    assert not same(pieces, weights(make_step()), rtol=1e-4, atol=1e-6)


def test_every_target_token_of_an_update_weighs_the_same(make_trainer: Make, make_step: Make, make_split: Make) -> None:
    split, start = make_split(6), make_step()
    expected = gradient_per_token(start, split, [0, 1, 2, 3, 4, 5])
    after = trained(make_trainer, make_step(), split=split, updates=[[[0], [1, 2, 3, 4], [5]]])
    moved = {name: before - after[name] for name, before in weights(start).items()}
    assert same(moved, expected, rtol=1e-3, atol=1e-6)


def test_the_rate_is_the_base_rate_times_the_factor(make_trainer: Make, make_step: Make) -> None:
    seen: list[Progress] = []

    def factor(progress: Progress) -> float:
        seen.append(progress)
        return 0.5 * progress.update

    step = make_step()
    optimizer = torch.optim.SGD([{"params": step.model.parameters(), "lr": 0.1}], lr=1.0)
    make_trainer(step=step, optimizer=optimizer, schedule=factor, limits=TrainingConfig(max_update=4)).run()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5 * 4)
    assert [(progress.update, progress.epoch) for progress in seen] == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert seen[0].tokens == 0 < seen[1].tokens < seen[2].tokens


@pytest.mark.parametrize(("clip_norm", "clipped"), [(0.0, False), (1e6, False), (0.01, True)])
def test_clipping_limits_the_norm_of_the_whole_gradient(
    make_trainer: Make, make_step: Make, clip_norm: float, clipped: bool
) -> None:
    before = weights(make_step())
    after = trained(make_trainer, make_step(), limits=TrainingConfig(max_update=1, clip_norm=clip_norm))
    norm = torch.cat([(before[name] - after[name]).flatten() for name in before]).norm()
    assert (norm <= 0.01001) == clipped


@pytest.mark.parametrize("clip_value", [0.0, 1e6, 0.003])
def test_clipping_by_value_limits_every_element_by_itself(
    make_trainer: Make, make_step: Make, clip_value: float
) -> None:
    before = weights(make_step())
    whole = trained(make_trainer, make_step())
    clipped = trained(make_trainer, make_step(), limits=TrainingConfig(max_update=1, clip_value=clip_value))
    limit = clip_value or float("inf")
    assert any((whole[name] - before[name]).abs().max() > 0.003 for name in before)
    for name, start in before.items():
        expected = (whole[name] - start).clamp(-limit, limit)
        torch.testing.assert_close(clipped[name] - start, expected, rtol=1e-3, atol=1e-6)


def test_dropout_depends_on_the_update_and_not_on_what_was_drawn_before(make_trainer: Make, make_step: Make) -> None:
    torch.manual_seed(5)
    one = trained(make_trainer, make_step(dropout=0.5), limits=TrainingConfig(max_update=3))
    torch.rand(100)
    again = trained(make_trainer, make_step(dropout=0.5), limits=TrainingConfig(max_update=3))
    other_seed = trained(make_trainer, make_step(dropout=0.5), limits=TrainingConfig(max_update=3), seed=2)
    assert same(one, again) and not same(one, other_seed)


def test_micro_batches_of_one_update_drop_different_elements(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[tuple[int, ...]] = []
    monkeypatch.setattr("nmt.training.loop.updater.seed_torch", lambda *key: seeds.append(key))
    make_trainer(updates=[[[0], [1]]], limits=TrainingConfig(max_update=2), seed=7).run()
    assert seeds == [(7, 1, 0), (7, 1, 1), (7, 2, 0), (7, 2, 1)]


def poison(monkeypatch: pytest.MonkeyPatch, updates: set[int]) -> None:
    """Make the gradients of the n-th updates infinite."""
    divide, calls = updater_module.divide, iter(range(1, 1000))

    def poisoned(gradients: list[Tensor], denominator: Tensor) -> None:
        divide(gradients, denominator)
        if next(calls) in updates:
            gradients[0].fill_(float("inf"))

    monkeypatch.setattr(updater_module, "divide", poisoned)


def test_an_update_that_is_not_finite_leaves_parameters_and_optimizer_alone(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, {2})
    updates = [[[0, 1]], [[2, 3]], [[4, 5]]]
    skipping, step = make_step(), make_step()
    adam = torch.optim.Adam(skipping.named_parameters(), lr=0.1)
    trainer: Trainer = make_trainer(step=skipping, optimizer=adam, updates=updates, limits=TrainingConfig(max_update=2))
    trainer.run()
    assert trainer.state.update == 2 and trainer.state.position.epoch == 2
    other = torch.optim.Adam(step.named_parameters(), lr=0.1)
    monkeypatch.undo()
    without = [updates[0], updates[2]]
    assert same(
        weights(skipping), trained(make_trainer, step, optimizer=other, updates=without, limits=TrainingConfig(2))
    )


class Slow(torch.optim.SGD):
    """One whose step takes five seconds by the clock of a test."""

    now = 0.0

    def step(self, closure: Any = None) -> Any:
        self.now += 5
        return super().step(closure)


def test_the_time_of_an_update_is_that_of_all_its_parts(make_trainer: Make, make_step: Make, tmp_path: Path) -> None:
    step = make_step()
    optimizer = Slow(step.named_parameters(), lr=1.0)
    trainer: Trainer = make_trainer(step=step, optimizer=optimizer, clock=lambda: optimizer.now, validators=())
    at = trainer.batches.at

    def planned(position: Any, update: int) -> Any:
        optimizer.now += 1
        return at(position, update)

    trainer.batches.at = planned  # type: ignore[method-assign]
    trainer.run()
    (event,) = (event for event in read_events(tmp_path / "run" / "log.jsonl") if event["event"] == "train")
    assert event["tokens_per_second"] == round(
        event["tokens"] / 7, 1
    )  # five, and one for each plan: of this and the next


def test_the_last_validation_is_part_of_the_time(make_trainer: Make, make_step: Make) -> None:
    step = make_step()
    optimizer = Slow(step.named_parameters(), lr=1.0)

    class SlowValidator:
        def __call__(self, *seeds: Any, **options: Any) -> dict[str, float]:
            optimizer.now += 70
            return {"loss": 1.0}

    trainer: Trainer = make_trainer(
        step=step,
        optimizer=optimizer,
        clock=lambda: optimizer.now,
        validators=(SlowValidator(),),
        limits=TrainingConfig(max_update=2),
        validation=ValidationConfig(interval=None, interval_updates=1),
    )
    trainer.run()
    assert trainer.state.seconds == 2 * (5 + 70)


def test_the_seconds_of_a_run_are_charged_to_what_took_them(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only stands still or is moved here: each activity takes another power of ten seconds."""
    now = [0.0]

    def takes(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **named: Any) -> Any:
            now[0] += seconds
            return work(*arguments, **named)

        return slow

    world = World()
    world.stopwatch = Stopwatch(lambda: now[0])
    trainer: Trainer = make_trainer(
        updates=[[[0], [1, 2]]],
        world=world,
        validators=[takes(1_000, Scripted(3.0, 2.0))],
        schedule=takes(1, lambda progress: 1.0),
        limits=TrainingConfig(max_update=2),
        validation=ValidationConfig(interval=None, interval_updates=1),
        save=CheckpointConfig(save_interval=None, save_interval_updates=1),
        reader=lambda read, device: BatchReader(takes(10, read), device),
        clock=lambda: now[0],
    )
    monkeypatch.setattr(trainer.updater, "announce", takes(100, trainer.updater.announce))
    monkeypatch.setattr(trainer.checkpoints, "save", takes(10_000, trainer.checkpoints.save))
    trainer.run()
    assert trainer.state.times == {
        COMPUTING: 2 * 1,
        READING: 2 * (2 * 10 + 100),  # two batches an update, and the announcement of the next ones
        WAITING: 0,
        VALIDATION: 2 * 1_000,
        CHECKPOINTS: 2 * 10_000,
    }


def test_minutes_between_checkpoints_count_from_the_last_one_for_minutes(make_trainer: Make, tmp_path: Path) -> None:
    readings = iter(range(0, 10**6, 60))  # a clock that is read once at the start, and three times an update: 3 minutes
    trainer: Trainer = make_trainer(
        limits=TrainingConfig(max_update=9),
        save=CheckpointConfig(save_interval=None, save_interval_minutes=7, save_interval_updates=2, keep_best=9),
        clock=lambda: float(next(readings)),
    )
    trainer.run()
    written = [read_info(path) for path in checkpoints_in(tmp_path / "run")]
    assert [info.update for info in written if "minutes" in info.reasons] == [3, 6, 9]


def test_what_is_due_is_decided_once_an_update(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[int] = []
    decide = Trainer._decide

    def counted(trainer: Trainer, *arguments: Any) -> Any:
        decided.append(trainer.state.update)
        return decide(trainer, *arguments)

    monkeypatch.setattr(Trainer, "_decide", counted)
    make_trainer(
        validators=[Scripted(3.0, 2.0, 1.0, 0.5)],
        validation=ValidationConfig(interval=None, interval_updates=1),
        save=CheckpointConfig(save_interval=1, save_interval_updates=2),
        limits=TrainingConfig(max_update=4),
    ).run()
    assert decided == [1, 2, 3, 4]


def test_fewer_updates_than_are_made_are_told_as_such(make_trainer: Make) -> None:
    trainer: Trainer = make_trainer(limits=TrainingConfig(max_update=2))
    assert trainer.run() == "2 updates are made"
    trainer.limits.max_update = 1
    assert trainer.ending() == "2 updates are made, and the limit is 1"


def test_skipped_updates_are_counted_and_logged(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, {1, 3})
    trainer: Trainer = make_trainer(limits=TrainingConfig(max_update=3))
    trainer.run()
    assert trainer.state.skipped == 2 and trainer.state.skipped_in_row == 0
    logged = [event for event in read_events(tmp_path / "run" / "log.jsonl") if event["event"] == "skipped"]
    assert [(event["update"], event["grad_norm"]) for event in logged] == [(1, "inf"), (2, "inf")]


@pytest.mark.parametrize("clipping", [{}, {"clip_norm": 1.0}, {"clip_value": 1.0}], ids=str)
def test_a_skipped_update_names_the_parameters_without_a_finite_gradient_and_no_other(
    make_trainer: Make, make_step: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clipping: dict[str, float]
) -> None:
    poison(monkeypatch, {1})
    step = make_step()
    make_trainer(step=step, limits=TrainingConfig(max_update=1, **clipping)).run()
    (dump,) = (tmp_path / "run").glob("*/update-*.json")
    first = next(name for name, parameter in step.named_parameters() if parameter.requires_grad)
    assert json.loads(dump.read_text(encoding="utf-8"))["parameters"] == [first]


def test_skipped_updates_end_the_run_only_if_they_follow_each_other(
    make_trainer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = TrainingConfig(max_update=3, max_bad_updates=2)
    poison(monkeypatch, {1, 3})
    make_trainer(limits=limits).run()
    poison(monkeypatch, {2, 3})
    with pytest.raises(NMTError, match="2 updates in a row"):
        make_trainer(limits=limits).run()


@pytest.mark.parametrize("ahead", [False, True])
def test_an_epoch_that_ends_with_a_skipped_update_is_saved_after_the_next_good_update(
    make_trainer: Make, make_step: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: ahead)
    poison(monkeypatch, {3})
    step, save = make_step(), CheckpointConfig(save_interval=1, keep_best=9)
    optimizer = torch.optim.Adam(step.parameters(), fused=True)
    make_trainer(step=step, optimizer=optimizer, limits=TrainingConfig(max_epoch=3), save=save).run()
    written = {path.name: read_info(path).reasons for path in checkpoints_in(tmp_path / "run")}
    assert written == {
        "checkpoint-0002-00000003": ("epoch",),
        "checkpoint-0002-00000005": ("epoch",),
        "checkpoint-0003-00000008": ("epoch", "final"),
    }


def test_an_epoch_whose_last_updates_are_all_skipped_is_saved_once(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, {3, 4, 5, 6})
    save = CheckpointConfig(save_interval=1, save_interval_updates=3)
    make_trainer(limits=TrainingConfig(max_epoch=3), save=save).run()
    written = {path.name: read_info(path).reasons for path in checkpoints_in(tmp_path / "run")}
    assert written == {
        "checkpoint-0003-00000003": ("update", "epoch"),
        "checkpoint-0003-00000005": ("epoch", "final"),
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite_end_the_run_and_are_never_saved(
    make_trainer: Make, make_step: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    step = make_step()
    optimizer = torch.optim.SGD(step.named_parameters(), lr=0.1)
    made = iter(range(1, 100))

    def spoil(*_: object) -> None:
        if next(made) == 3:
            next(step.parameters()).data.fill_(value)

    optimizer.register_step_post_hook(spoil)
    trainer: Trainer = make_trainer(
        step=step,
        optimizer=optimizer,
        save=CheckpointConfig(save_interval=None, save_interval_updates=1),
        limits=TrainingConfig(max_update=3),
    )
    with pytest.raises(NMTError, match="after update 3 the parameter .* is not finite; the last good .*00000002"):
        trainer.run()
    assert [path.name[-1] for path in checkpoints_in(tmp_path / "run")] == ["1", "2"]


class Scripted:
    """A validator that reports the next of given values."""

    def __init__(self, *values: float) -> None:
        self._values = iter(values)

    def __call__(self, stop: Callable[[], bool]) -> dict[str, float]:
        return {"loss": next(self._values)}


def test_patience_ends_the_run_after_that_many_validations_without_improvement(make_trainer: Make) -> None:
    trainer: Trainer = make_trainer(
        validators=[Scripted(3.0, 2.0, 2.5, 2.0, 1.0)],
        best=BestScore("loss", higher_is_better=False, patience=2),
        validation=ValidationConfig(interval=None, interval_updates=1, patience=2),
        limits=TrainingConfig(max_update=100),
    )
    assert trainer.run() == "loss did not improve in 2 validations"
    assert trainer.state.update == 4


def test_each_improvement_is_saved_and_pointed_at(make_trainer: Make, tmp_path: Path) -> None:
    make_trainer(
        validators=[Scripted(3.0, 2.0, 2.5)],
        validation=ValidationConfig(interval=None, interval_updates=1),
        limits=TrainingConfig(max_update=3),
    ).run()
    best, last = pointed(tmp_path / "run", "best"), pointed(tmp_path / "run", "last")
    assert best is not None and read_info(best).update == 2 and read_info(best).scores == {"loss": 2.0}
    assert last is not None and read_info(last).update == 3 and read_info(last).reasons == ("final",)


def test_an_epoch_without_an_update_since_the_last_validation_is_not_validated(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would say nothing, and count for patience."""
    poison(monkeypatch, {1, 2, 3, 7, 8, 9})
    trainer: Trainer = make_trainer(
        validators=[Scripted(3.0, 2.0)],
        validation=ValidationConfig(interval=1),
        limits=TrainingConfig(max_epoch=4),
    )
    trainer.run()
    assert trainer.validation.best.history == [3.0, 2.0]
    stored = read_checkpoint(pointed(tmp_path / "run", "last") or Path(), training=True)
    again: Trainer = make_trainer(validators=[Scripted()])
    again.restore(ResumePoint.of(stored))
    assert again.state.validated == again.state.update == trainer.state.update > 0  # also in a run that goes on


def test_validation_comes_at_its_interval_and_at_the_end(make_trainer: Make, tmp_path: Path) -> None:
    make_trainer(
        validators=[Scripted(3.0, 2.0, 1.0)],
        validation=ValidationConfig(interval=None, interval_updates=2),
        limits=TrainingConfig(max_update=5),
    ).run()
    events = map(json.loads, (tmp_path / "run" / "log.jsonl").read_text().splitlines())
    assert [event["update"] for event in events if event["event"] == "valid"] == [2, 4, 5]


@pytest.mark.parametrize(
    ("limits", "ending", "update"),
    [
        (TrainingConfig(max_update=4), "4 updates are made", 4),
        (TrainingConfig(max_epoch=2), "2 epochs done", 6),
        (TrainingConfig(max_update=100, max_epoch=1), "1 epoch done", 3),
        (TrainingConfig(stop_time_hours=0.5), "--stop-time-hours 0.5 is reached", 2),
    ],
)
def test_each_limit_ends_the_run(make_trainer: Make, limits: TrainingConfig, ending: str, update: int) -> None:
    readings = iter(range(0, 10**6, 400))  # a clock that is read three times an update: 20 minutes each
    trainer: Trainer = make_trainer(limits=limits, clock=lambda: float(next(readings)))
    assert trainer.run() == ending
    assert trainer.state.update == update


class Switching(torch.optim.SGD):
    """An optimizer that keeps two kinds of weights and says when it was switched."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.switched: list[str] = []

    def train(self) -> None:
        self.switched.append("train")

    def eval(self) -> None:
        self.switched.append("eval")


def test_an_optimizer_with_modes_is_in_evaluation_while_validating_and_saving(
    make_trainer: Make, make_step: Make
) -> None:
    step = make_step()
    optimizer = Switching(step.named_parameters(), lr=0.1)
    seen: list[str] = []

    def validator(stop: Callable[[], bool]) -> dict[str, float]:
        seen.append(f"{optimizer.switched[-1]} {step.training}")
        return {}

    make_trainer(step=step, optimizer=optimizer, validators=[validator]).run()
    assert seen == ["eval False"] and optimizer.switched == ["train", *["eval", "train"] * 2]
    assert step.training


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_batch_that_the_gpu_cannot_hold_is_described(make_trainer: Make, make_step: Make, where: str) -> None:
    step = make_step()

    def exhausted(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    if where == "forward":
        step.model.register_forward_pre_hook(exhausted)
    else:
        next(step.model.parameters()).register_hook(exhausted)
    with pytest.raises(DeviceError, match=r"out of memory at update 1, in a micro-batch of .*--max-tokens"):
        make_trainer(step=step).run()


def test_an_optimizer_that_the_gpu_cannot_hold_is_said_with_the_update(make_trainer: Make, make_step: Make) -> None:
    def exhausted(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    step = make_step()
    optimizer = torch.optim.SGD(step.named_parameters(), lr=0.1)
    optimizer.register_step_pre_hook(exhausted)
    with pytest.raises(DeviceError, match=r"out of memory at update 1, after its gradients"):
        make_trainer(step=step, optimizer=optimizer).run()


class ReadAheadToCpu(ReadAhead):
    """Copies nothing."""

    def __init__(self, read: Callable[[Any], Batch]) -> None:
        BatchReader.__init__(self, read, torch.device("cpu"))
        self._thread, self._coming = ThreadPoolExecutor(1), deque()

    def __call__(self, indices: Any) -> Batch:
        return self._begun(indices)[0]

    def _begin(self, indices: Any) -> Any:
        return self.read(indices), None


def test_batches_read_ahead_change_nothing_but_where_they_are_read(
    make_trainer: Make, make_step: Make, make_split: Callable[..., Split]
) -> None:
    """As on a GPU: of three updates an epoch, two epochs, all but the first are read by the thread."""
    split, limits = make_split(6), TrainingConfig(max_update=6)
    expected = trained(make_trainer, make_step(), split=split, limits=limits)
    read: list[bool] = []

    def noting(read_batch: Callable[[Any], Batch], device: torch.device) -> ReadAhead:
        def noted(indices: Any) -> Batch:
            read.append(threading.current_thread() is threading.main_thread())
            return read_batch(indices)

        return ReadAheadToCpu(noted)

    assert same(expected, trained(make_trainer, make_step(), split=split, limits=limits, reader=noting))
    assert read.count(True) == 1 and read.count(False) >= 5

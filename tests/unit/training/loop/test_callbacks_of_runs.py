"""Callbacks end a run after a checkpoint, by a request or by their failure, and change nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.config.sections import CheckpointConfig, TrainingConfig, ValidationConfig
from nmt.errors import Interrupted
from nmt.reporting.callbacks import Callback, CallbackError, Callbacks, Returned, RunEvent, Stop
from nmt.reporting.reporter import Reporter
from nmt.storage.checkpoints import read_checkpoint, read_info
from nmt.storage.run_folder import checkpoints_in
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.loop import updater as updater_module
from nmt.training.loop.learner import Step
from nmt.training.loop.trainer import StopRequest, Trainer
from nmt.training.loop.validation import ValidationStopped
from tests.unit.training.loop.test_trainer import poison

Make = Callable[..., Any]
SIX = TrainingConfig(max_update=6)


class At(Callback):
    """Do something in one method at one update, and count the calls."""

    def __init__(self, method: str, update: int, action: Callable[[], Returned]) -> None:
        self.calls: list[tuple[str, int]] = []
        self._at, self._action = (method, update), action

    def _called(self, method: str, event: RunEvent) -> Returned:
        self.calls.append((method, event.update))
        return self._action() if self._at == (method, event.update) else None

    def on_start(self, event: RunEvent) -> Returned:
        return self._called("on_start", event)

    def on_update(self, event: RunEvent) -> Returned:
        torch.rand(3)  # random numbers of a callback change nothing
        return self._called("on_update", event)

    def on_skip(self, event: RunEvent) -> Returned:
        return self._called("on_skip", event)

    def on_validation(self, event: RunEvent) -> Returned:
        return self._called("on_validation", event)

    def on_checkpoint(self, event: RunEvent) -> Returned:
        return self._called("on_checkpoint", event)


def stop() -> Stop:
    return Stop("enough")


def fail() -> Returned:
    raise RuntimeError("broken")


def validate(stops: Callable[[], bool]) -> dict[str, float]:
    if stops():
        raise ValidationStopped
    return {"loss": 1.0}


@pytest.fixture
def run(make_trainer: Make, make_step: Make, tmp_path: Path) -> Callable[..., Trainer]:
    """Train six updates with dropout, a validation and a checkpoint every second one, by this callback."""

    def run(*callbacks: Callback, step: Step | None = None, restore: bool = False, **parts: Any) -> Trainer:
        step = step or make_step(dropout=0.3)
        report = ReportConfig(log_interval=1, html=False, progress=ProgressStyle.none)
        trainer: Trainer = make_trainer(
            step=step,
            optimizer=torch.optim.Adam(step.named_parameters(), lr=0.1, fused=True),
            limits=SIX,
            save=CheckpointConfig(save_interval=None, save_interval_updates=2, asynchronous=False),
            validators=[validate],
            validation=ValidationConfig(interval=None, interval_updates=2),
            reporter=Reporter(tmp_path / "run", report, total_updates=None, callbacks=Callbacks(callbacks)),
            **parts,
        )
        if restore:
            trainer.restore(ResumePoint.of(read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True)))
        trainer.reporter.start(trainer.state.update, {})
        trainer.run()
        trainer.require_callbacks()
        return trainer

    return run


def saved(folder: Path) -> list[tuple[int, set[str]]]:
    return [(info.update, set(info.reasons)) for info in map(read_info, checkpoints_in(folder / "run"))]


@pytest.mark.parametrize(
    ("method", "update", "last"),
    [("on_update", 3, 3), ("on_update", 4, 4), ("on_validation", 2, 2), ("on_checkpoint", 2, 3)],
)
def test_a_request_to_stop_is_a_normal_end_with_a_last_validation_and_checkpoint(
    run: Callable[..., Trainer], tmp_path: Path, method: str, update: int, last: int
) -> None:
    callback = At(method, update, stop)
    trainer = run(callback)
    assert trainer.ending() == "stopped by At: enough" and trainer.complete
    assert trainer.state.update == trainer.state.validated == last
    assert saved(tmp_path)[-1] == (
        last,
        {"final"} | ({"best"} if last == 2 else set()) | ({"update"} if last % 2 == 0 else set()),
    )
    assert callback.calls.count(("on_validation", last)) == 1


@pytest.mark.parametrize("ahead", [False, True])
def test_a_request_to_stop_at_a_skipped_update_ends_the_run_after_the_next_one_at_the_latest(
    run: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: ahead)
    poison(monkeypatch, {3})
    trainer = run(At("on_skip", 3, stop))
    assert trainer.ending() == "stopped by At: enough" and trainer.complete
    assert trainer.state.skipped == 1 and trainer.state.update == trainer.state.validated <= 3


def test_a_stopped_run_trains_further_unless_its_callback_stops_it_at_the_start(
    run: Callable[..., Trainer], tmp_path: Path
) -> None:
    run(At("on_update", 3, stop))
    again = At("on_start", 3, stop)
    assert run(again, restore=True).state.update == 3
    assert again.calls == [("on_start", 3)]
    assert run(restore=True).state.update == 6


def test_a_run_with_callbacks_and_interruptions_equals_one_without(
    run: Callable[..., Trainer], make_step: Make, tmp_path: Path
) -> None:
    alone, followed = make_step(dropout=0.3), make_step(dropout=0.3)
    run(step=alone)
    for checkpoint in checkpoints_in(tmp_path / "run"):
        checkpoint.rename(tmp_path / f"old-{checkpoint.name}")
    with pytest.raises(CallbackError):
        run(At("on_update", 3, fail), step=make_step(dropout=0.3))
    run(At("on_update", 99, fail), step=followed, restore=True)
    for one, other in zip(alone.parameters(), followed.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("method", ["on_update", "on_validation", "on_checkpoint"])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_failure_ends_the_run_after_a_checkpoint(
    run: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, ahead: bool
) -> None:
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: ahead)
    callback = At(method, 2, fail)
    with pytest.raises(
        CallbackError, match=f"callback At failed in {method} at update 2: RuntimeError: broken"
    ) as error:
        run(callback)
    assert isinstance(error.value.__cause__, RuntimeError)
    update, reasons = saved(tmp_path)[-1]
    late = method == "on_checkpoint" or (ahead and method == "on_update" and update == 3)
    assert update == (3 if late else 2) and "callback" in reasons
    assert max(update for _, update in callback.calls) == 2  # nothing is called after the failure


def test_a_validation_that_a_failure_prevents_is_made_by_the_resumed_run(
    run: Callable[..., Trainer], tmp_path: Path
) -> None:
    with pytest.raises(CallbackError):
        run(At("on_update", 2, fail))
    trainer = run(resumed := At("on_update", 99, fail), restore=True)
    assert trainer.state.interrupted is None
    assert [update for method, update in resumed.calls if method == "on_validation"][0] == 2


def test_a_failure_at_the_start_ends_the_run_before_its_first_update(
    run: Callable[..., Trainer], tmp_path: Path
) -> None:
    with pytest.raises(CallbackError, match="failed in on_start at update 0"):
        run(At("on_start", 0, fail))
    assert saved(tmp_path) == []


def test_a_signal_still_interrupts_a_run_with_callbacks(run: Callable[..., Trainer], tmp_path: Path) -> None:
    request = StopRequest()

    def signalled() -> None:
        request._note(15, None)

    with pytest.raises(Interrupted):
        run(At("on_update", 3, signalled), stop=request)
    assert saved(tmp_path)[-1] == (3, {"signal"})

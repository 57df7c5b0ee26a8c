"""Updates that are launched before it is known whether the last one is made: no figure and no file is another."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.choices import Precision
from nmt.config.sections import CheckpointConfig, TrainingConfig, ValidationConfig
from nmt.data.batching.batch import Batch
from nmt.distributed.replicated import Replicated
from nmt.distributed.sharding import Sharded
from nmt.distributed.world import World
from nmt.errors import NMTError
from nmt.interface import LossReport
from nmt.optim import optimizers, torch_optimizers, update_rules
from nmt.optim.moving_average import MovingAverage
from nmt.reporting.figures import UpdateReport
from nmt.reporting.run_record import read_events
from nmt.reporting.stopwatch import Stopwatch
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop import updater as updater_module
from nmt.training.loop.learner import Arithmetic, Step
from nmt.training.loop.trainer import StopRequest, Trainer
from nmt.training.loop.updater import UpdateSums, runs_ahead
from nmt.training.loop.validation import BestScore

Make = Callable[..., Any]
MEASURED = {"seconds", "tokens_per_second", "memory_mb", "times", "processor_share"}
UPDATES = [[[0, 1], [2]], [[3]], [[4, 5]], [[6, 7]]]


class Spoilt(Step):
    """Notes its batches. ``loss`` and ``gradient``: sentences that make one of them infinite, whenever they come."""

    def __init__(self, step: Step, loss: set[int], gradient: set[int]) -> None:
        super().__init__(step.model, step.criterion)
        self.loss, self.gradient, self.log = loss, gradient, list[str]()

    def forward(self, batch: Batch) -> LossReport:
        self.log.append("batch")
        report = super().forward(batch)
        sentences = set(batch.sentence_ids.tolist())
        if sentences & self.loss:
            report.loss_sum.data.fill_(float("inf"))
        if sentences & self.gradient:
            report.loss_sum.register_hook(lambda gradient: gradient * float("inf"))
        return report


class Rising:
    """A validator whose figure falls twice and rises ever after."""

    def __init__(self) -> None:
        self._figures = iter([3.0, 2.0, *range(4, 50)])

    def __call__(self, stop: Callable[[], bool]) -> dict[str, float]:
        return {"loss": float(next(self._figures))}


class StopAt:
    """Around each update; asks for a stop in the one at a place in the data."""

    def __init__(self, position: DataPosition) -> None:
        self.position, self.stop = position, StopRequest()

    @contextlib.contextmanager
    def watch(self, trainer: Trainer) -> Iterator[None]:
        if trainer.state.position == self.position:
            self.stop.received = signal.SIGTERM
        yield


def adam(step: Step, rule: type[torch.optim.Adam] = torch.optim.Adam) -> torch.optim.Adam:
    return rule(step.parameters(), lr=0.01, weight_decay=0.1, fused=True)


def unmeasured(value: Any) -> Any:
    """Without the figures of a clock, however deep they are."""
    if isinstance(value, Mapping):
        return {name: unmeasured(entry) for name, entry in value.items() if name not in MEASURED}
    return [unmeasured(entry) for entry in value] if isinstance(value, list) else value


def stored(path: Path) -> tuple[Any, dict[str, Tensor]]:
    """All that a checkpoint holds."""
    checkpoint = read_checkpoint(path, training=True)
    assert checkpoint.training is not None
    tensors = {f"{path.name}.{name}": tensor for name, tensor in checkpoint.model.items()}
    tensors |= {f"{path.name}.training.{name}": tensor for name, tensor in checkpoint.training.tensors.items()}
    return (checkpoint.info, unmeasured(checkpoint.training.values)), tensors


def outcome(
    make_trainer: Make,
    step: Spoilt,
    folder: Path,
    *,
    rule: type[torch.optim.Adam],
    stop: DataPosition | None,
    **parts: Any,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What a run says and writes, and all its tensors; its folder is gone afterwards. An update takes 400 seconds."""
    request, optimizer = StopAt(stop or DataPosition(99)), adam(step, rule)
    trainer: Trainer = make_trainer(
        step=step,
        optimizer=optimizer,
        updates=UPDATES,
        stop=request.stop,
        around_update=lambda update: request.watch(trainer),
        clock=lambda: 400.0 * (len(UPDATES) * trainer.state.position.epoch + trainer.state.position.batch),
        **parts,
    )
    try:
        ending = trainer.run()
    except NMTError as error:
        ending = str(error)
    events = [unmeasured(event) for event in read_events(folder / "log.jsonl")]
    tensors = {name: parameter.detach().clone() for name, parameter in step.named_parameters()}
    for index, entry in optimizer.state_dict()["state"].items():
        tensors |= {f"{index}.{name}": value for name, value in entry.items()}
    checkpoints = {}
    for path in checkpoints_in(folder):
        checkpoints[path.name], found = stored(path)
        tensors |= found
    dumps = {path.name: json.loads(path.read_text("utf-8")) for path in folder.glob("bad-updates/*.json")}
    shutil.rmtree(folder)
    state = unmeasured(asdict(trainer.state))
    if (
        trainer.ending() is None and stop is None
    ):  # it ended with an error, and one that ran ahead has begun the next update
        state |= {"position": None, "epoch": None}
    return {"ending": ending, "state": state, "events": events, "dumps": dumps, "stored": checkpoints}, tensors


RUNS: dict[str, dict[str, Any]] = {
    "updates": {"limits": TrainingConfig(max_update=7)},
    "epochs": {"limits": TrainingConfig(max_epoch=3, clip_norm=0.1)},
    "save_by_updates": {
        "limits": TrainingConfig(max_update=9),
        "save": CheckpointConfig(save_interval=None, save_interval_updates=2),
    },
    "save_by_epochs": {"limits": TrainingConfig(max_epoch=2), "save": CheckpointConfig(save_interval=1)},
    "validate": {
        "limits": TrainingConfig(max_update=8),
        "validation": ValidationConfig(interval=None, interval_updates=3),
    },
    "patience": {"limits": TrainingConfig(max_epoch=9), "validation": ValidationConfig(interval=1, patience=2)},
    "diverge": {"limits": TrainingConfig(max_update=8, max_bad_updates=2, clip_value=0.5)},
    "minutes": {
        "limits": TrainingConfig(stop_time_hours=1.2),
        "save": CheckpointConfig(save_interval=None, save_interval_minutes=15),
        "rule": torch.optim.AdamW,
    },
    "stop": {"limits": TrainingConfig(max_update=99), "stop": DataPosition(2, 2)},
    "stop_in_a_bad_one": {
        "limits": TrainingConfig(max_update=99),
        "stop": DataPosition(3, 1),
        "rule": torch.optim.AdamW,
    },
}
FAULTS: dict[str, tuple[set[int], set[int]]] = {  # updates whose loss, and whose gradient, is not finite
    "sound": (set(), set()),
    "loss": ({3}, set()),
    "gradient": (set(), {3}),
    "last_and_first": ({6}, {2}),
    "three_in_a_row": ({3, 4, 6}, set()),
}
# By day each run has two of the faults, "diverge" three bad updates in a row; each fault is in four runs.
ROWS = [
    pytest.param(parts, *faults, id=f"{run}-{fault}", marks=[] if (row - column) % 5 in (0, 2) else pytest.mark.nightly)
    for row, (run, parts) in enumerate(RUNS.items())
    for column, (fault, faults) in enumerate(FAULTS.items())
]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "loss", "gradient"), ROWS)
def test_a_run_ahead_is_the_run_that_waits(
    make_trainer: Make,
    make_step: Make,
    make_split: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: dict[str, Any],
    loss: set[int],
    gradient: set[int],
) -> None:
    save = parts.get("save", CheckpointConfig(save_interval=None))
    save = replace(save, asynchronous=False, keep_training_states=None)
    patience = parts["validation"].patience if "validation" in parts else None
    outcomes = []
    for ahead in (False, True):
        monkeypatch.setattr(updater_module, "runs_ahead", lambda *_, ahead=ahead: ahead)
        given = {
            "split": make_split(8),
            "validators": [Rising()] if "validation" in parts else (),
            "best": BestScore("loss", higher_is_better=False, patience=patience),
            "rule": torch.optim.Adam,
            "stop": None,
            **parts,
            "save": save,
        }
        step = Spoilt(make_step(dropout=0.2), loss, gradient)
        outcomes.append(outcome(make_trainer, step, tmp_path / "run", **given))
        assert step.log
    (said, tensors), (said_ahead, tensors_ahead) = outcomes
    assert said_ahead == said
    assert said["stored"] or "updates in a row" in said["ending"]
    assert bool(said["dumps"]) == bool(loss | gradient)
    assert tensors.keys() == tensors_ahead.keys() and len(tensors) > 20
    for name, tensor in tensors.items():
        assert torch.equal(tensors_ahead[name], tensor), name


def order(make_trainer: Make, step: Spoilt, monkeypatch: pytest.MonkeyPatch, **parts: Any) -> list[str]:
    """In which order a run ahead computes batches and fetches figures."""
    receive = UpdateSums.receive

    def noted(self: UpdateSums) -> UpdateReport:
        step.log.append("figures")
        return receive(self)

    monkeypatch.setattr(UpdateSums, "receive", noted)
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: True)
    make_trainer(step=step, optimizer=adam(step), updates=[[[0]], [[1]]], **parts).run()
    return step.log


def test_figures_are_fetched_while_the_next_update_is_computed(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Spoilt(make_step(), set(), set())
    log = order(make_trainer, step, monkeypatch, limits=TrainingConfig(max_update=4))
    assert log == ["batch", "batch", "figures", "batch", "figures", "batch", "figures", "figures"]


def test_figures_are_waited_for_where_something_depends_on_them(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, save = Spoilt(make_step(), set(), set()), CheckpointConfig(save_interval=None, save_interval_updates=2)
    log = order(make_trainer, step, monkeypatch, limits=TrainingConfig(max_update=4), save=save)
    assert log == ["batch", "batch", "figures", "figures"] * 2


def test_the_update_after_one_that_is_not_made_begins_again_under_its_number(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bad batch, the next one, the bad one again for what is said of it, and the next one again."""
    step, seeds = Spoilt(make_step(), {0}, set()), list[tuple[int, ...]]()
    monkeypatch.setattr("nmt.training.loop.updater.seed_torch", lambda *key: seeds.append(key))
    log = order(make_trainer, step, monkeypatch, limits=TrainingConfig(max_update=2, max_epoch=1), seed=7)
    assert log == ["batch", "batch", "figures", "batch", "batch", "figures"]
    assert seeds == [(7, 1, 0), (7, 2, 0), (7, 1, 0), (7, 1, 0)]


def test_the_time_of_updates_that_overlap_is_counted_once(
    make_trainer: Make, make_step: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lasts from its beginning, or from when the figures of the one before were there, until its own are."""
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: True)
    readings, reported, step = iter(range(1000)), list[float](), make_step()
    trainer: Trainer = make_trainer(
        step=step, optimizer=adam(step), limits=TrainingConfig(max_update=4), clock=lambda: float(next(readings))
    )
    monkeypatch.setattr(trainer.reporter, "update", lambda *given, **_: reported.append(given[2].seconds))
    trainer.run()
    # The clock is read when an update begins (1, 3, 6, 9), when figures are there (4, 7, 10, 12), and after each update.
    assert reported == [3.0, 3.0, 3.0, 2.0]


@pytest.mark.parametrize(
    ("device", "precision", "changes", "ahead"),
    [
        ("cuda", Precision.bf16, "", True),
        ("cuda", Precision.fp32, "", True),
        ("cuda", Precision.fp16, "", False),
        ("cpu", Precision.fp32, "", False),
        ("cuda", Precision.bf16, "not fused", False),
        ("cuda", Precision.bf16, "average", False),
        ("cuda", Precision.bf16, "divided", False),
    ],
)
def test_what_runs_ahead(make_step: Make, device: str, precision: Precision, changes: str, ahead: bool) -> None:
    rule = torch.optim.Adam(make_step().parameters(), fused=changes != "not fused")
    optimizer = MovingAverage(rule, 0.9) if changes == "average" else rule
    world = World()
    world.divides = changes == "divided"
    assert Sharded.divides and not Replicated.divides and not World.divides
    assert runs_ahead(optimizer, Arithmetic(torch.device(device), precision), world) == ahead


def test_of_all_optimizers_adam_and_adamw_run_ahead(make_step: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others would not pass over a bad update, or would do so by half."""
    for module in (torch_optimizers, update_rules):  # imported by now: one would take the other's for its own
        monkeypatch.setattr(module, "runs_fused", lambda groups: True)
    arithmetic, found = Arithmetic(torch.device("cuda"), Precision.bf16), set()
    for name in optimizers.names():
        groups = [{"params": list(make_step().named_parameters())}]
        optimizer = optimizers.build(optimizers.config_class(name)(), groups)
        if runs_ahead(optimizer, arithmetic, World()):
            found.add(name)
    assert found == {"adam", "adamw"}


def summed(sums: list[float], names: Sequence[str] = ()) -> UpdateSums:
    """The sums of an update whose auxiliary losses have these names."""
    update = UpdateSums()
    update.sums, update.names = torch.tensor(sums, dtype=torch.float64), list(names)
    return update


def test_figures_leave_the_device_and_come_back_as_a_report() -> None:
    update = summed([6.0, 5.0, 4.0, 3.0, 2.0, 3.5, 0.5], ["balance"])
    update.send(torch.tensor(1.5), learning_rate=0.1)
    assert update.receive() == UpdateReport(6.0, 5.0, 4.0, 3, 2, 1.5, 0.1, 0.0, {"balance": 0.5}, weight=3.5)


@pytest.mark.parametrize(
    ("loss", "norm", "finite"), [(1.0, 1.0, True), (float("nan"), 1.0, False), (1.0, float("inf"), False)]
)
def test_an_update_is_finite_if_its_loss_and_its_norm_are(loss: float, norm: float, finite: bool) -> None:
    update = summed([loss, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert bool(update.send(torch.tensor(norm), learning_rate=0.1)) == update.receive().finite == finite


def test_the_exchange_of_gradients_at_the_end_of_a_pass_is_waiting() -> None:
    """A callback that is registered in the pass stands for the exchange, as in torch's DistributedDataParallel."""
    now, arrived = [0.0], list[float]()
    stopwatch, parameter = Stopwatch(lambda: now[0]), torch.ones(1, requires_grad=True)
    world: Any = SimpleNamespace(stopwatch=stopwatch, arrive=lambda: arrived.append(now[0]))

    def passes(seconds: float) -> None:
        now[0] += seconds

    def computed(_: Tensor) -> None:
        passes(3.0)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: passes(5.0))

    parameter.register_hook(computed)  # type: ignore[no-untyped-call]
    updater_module.backward((2 * parameter).sum(), world)
    passes(1.0)
    times = stopwatch.take()
    assert (times["computing"], times["waiting"]) == (4.0, 5.0) and parameter.grad == 2.0
    assert arrived == [3.0]  # where the others begin to wait for this rank, or it for them

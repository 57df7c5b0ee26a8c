"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
import torch

from nmt.config.sections import CheckpointConfig
from nmt.errors import StorageError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState
from nmt.training.checkpoints.store import CheckpointStore, Snapshot
from nmt.training.checkpoints.writer import CheckpointWriter


class SlowStore:
    """Writes nothing, and that only when it is allowed to."""

    folder, options = Path("run"), CheckpointConfig(max_failed_saves=3)

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.saved: list[tuple[int, list[float]]] = []
        self.fails = False

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> Path | None:
        assert self.allowed.wait(10)
        if self.fails and required:
            raise StorageError("full")
        if self.fails:
            return None
        values = [*snapshot.model["weight"].tolist(), *snapshot.training.tensors["moment"].tolist()]
        values += snapshot.training.values["history"]
        self.saved.append((snapshot.info.update, values))
        return self.folder / str(snapshot.info.update)

    def newest(self) -> Path | None:
        return self.folder / str(self.saved[-1][0]) if self.saved else None


def writer_of(store: SlowStore, *, asynchronous: bool = True) -> CheckpointWriter:
    return CheckpointWriter(cast(CheckpointStore, store), asynchronous=asynchronous)


def snapshot(
    update: int,
    weight: torch.Tensor,
    moment: torch.Tensor,
    history: Sequence[float] = (),
    reasons: tuple[str, ...] = (),
) -> Snapshot:
    values = {"history": history}
    return Snapshot(CheckpointInfo(update, 1, reasons), {"weight": weight}, TrainingState({"moment": moment}, values))


def test_training_goes_on_and_what_is_written_is_the_past() -> None:
    store, weight, history = SlowStore(), torch.ones(1), [3.0]
    writing = writer_of(store)
    writing.save(snapshot(1, weight, weight[:1], history), best=False)
    weight.fill_(2.0)  # the next update
    history.append(4.0)  # and validation
    assert not store.saved and not writing.written()
    store.allowed.set()
    writing.join()
    assert store.newest() == Path("run/1") and store.saved == [(1, [1.0, 1.0, 3.0])]
    assert writing.written() == [(CheckpointInfo(1, 1), Path("run/1"))] and not writing.written()


def test_the_last_one_of_a_run_waits_for_the_one_before_and_is_written_at_once() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    writing = writer_of(store)
    writing.save(snapshot(1, weight, weight), best=False)
    threading.Timer(0.1, store.allowed.set).start()
    writing.save(snapshot(2, weight, weight, reasons=("final",)), best=False)
    assert [update for update, _ in store.saved] == [1, 2]
    assert [info.update for info, _ in writing.written()] == [1, 2]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_is_an_error_only_if_the_checkpoint_is_required(asynchronous: bool) -> None:
    store, weight = SlowStore(), torch.zeros(1)
    store.fails = True
    store.allowed.set()
    writing = writer_of(store, asynchronous=asynchronous)
    writing.save(snapshot(1, weight, weight), best=False)
    with pytest.raises(StorageError, match="full"):
        writing.save(snapshot(2, weight, weight, reasons=("final",)), best=False)
    assert not writing.written()


def test_without_a_thread_it_is_on_disk_when_saving_returns() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    store.allowed.set()
    writer_of(store, asynchronous=False).save(snapshot(1, weight, weight), best=False)
    assert store.saved


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_the_end_waits_for_what_is_on_its_way(error: type[Exception] | None) -> None:
    store, weight = SlowStore(), torch.zeros(1)
    with contextlib.suppress(RuntimeError), writer_of(store) as writing:
        writing.save(snapshot(1, weight, weight), best=False)
        threading.Timer(0.1, store.allowed.set).start()
        if error is not None:
            raise error
    assert store.saved


def test_an_interruption_waits_for_nothing() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    with pytest.raises(KeyboardInterrupt), writer_of(store) as writing:
        writing.save(snapshot(1, weight, weight), best=False)
        raise KeyboardInterrupt
    assert not store.saved
    store.allowed.set()
    writing.join()


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_last_failure_in_a_row_that_is_allowed_ends_the_run(asynchronous: bool) -> None:
    store, weight = SlowStore(), torch.zeros(1)
    store.allowed.set()
    writing = writer_of(store, asynchronous=asynchronous)

    def save(update: int, *, fails: bool) -> None:
        store.fails = fails
        writing.save(snapshot(update, weight, weight), best=False)
        writing.join()

    for update, fails in enumerate([True, True, False, True, True], 1):
        save(update, fails=fails)
    with pytest.raises(
        StorageError,
        match="3 checkpoints in a row could not be written within 0 minutes: full; the newest checkpoint is run/3",
    ):
        save(6, fails=True)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_long_after_the_last_checkpoint_ends_the_run(asynchronous: bool) -> None:
    store, weight, now = SlowStore(), torch.zeros(1), [0.0]
    store.allowed.set()
    store.options = CheckpointConfig(max_failed_saves=9, max_unsaved_minutes=2)
    writing = CheckpointWriter(cast(CheckpointStore, store), asynchronous=asynchronous, clock=lambda: now[0])

    def save(update: int, seconds: float, *, fails: bool) -> None:
        store.fails, now[0] = fails, seconds
        writing.save(snapshot(update, weight, weight), best=False)
        writing.join()

    save(1, 119, fails=True)
    save(2, 500, fails=False)  # late, but written
    save(3, 619, fails=True)
    with pytest.raises(StorageError, match="2 checkpoints in a row could not be written within 2 minutes: full"):
        save(4, 620, fails=True)

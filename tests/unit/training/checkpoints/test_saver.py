"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
import torch

from nmt.errors import StorageError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState
from nmt.training.checkpoints.keeper import Saver
from nmt.training.checkpoints.store import CheckpointStore, Snapshot


class SlowStore:
    """Writes nothing, and that only when it is allowed to."""

    folder = Path("run")

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

    def last(self) -> Path | None:
        return self.folder / str(self.saved[-1][0]) if self.saved else None


def saver(store: SlowStore, *, asynchronous: bool = True) -> Saver:
    return Saver(cast(CheckpointStore, store), asynchronous=asynchronous)


def snapshot(update: int, weight: torch.Tensor, moment: torch.Tensor, history: Sequence[float] = ()) -> Snapshot:
    values = {"history": history}
    return Snapshot(CheckpointInfo(update, 1), {"weight": weight}, TrainingState({"moment": moment}, values))


def test_training_goes_on_and_what_is_written_is_the_past() -> None:
    store, weight, history = SlowStore(), torch.ones(1), [3.0]
    writing = saver(store)
    writing.save(snapshot(1, weight, weight[:1], history), best=False, required=False)
    weight.fill_(2.0)  # the next update
    history.append(4.0)  # and validation
    assert not store.saved and not writing.written()
    store.allowed.set()
    writing.join()
    assert store.last() == Path("run/1") and store.saved == [(1, [1.0, 1.0, 3.0])]
    assert writing.written() == [(CheckpointInfo(1, 1), Path("run/1"))] and not writing.written()


def test_the_last_one_of_a_run_waits_for_the_one_before_and_is_written_at_once() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    writing = saver(store)
    writing.save(snapshot(1, weight, weight), best=False, required=False)
    threading.Timer(0.1, store.allowed.set).start()
    writing.save(snapshot(2, weight, weight), best=False, required=True)
    assert [update for update, _ in store.saved] == [1, 2]
    assert [info.update for info, _ in writing.written()] == [1, 2]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_failure_is_an_error_only_if_the_checkpoint_is_required(asynchronous: bool) -> None:
    store, weight = SlowStore(), torch.zeros(1)
    store.fails = True
    store.allowed.set()
    writing = saver(store, asynchronous=asynchronous)
    writing.save(snapshot(1, weight, weight), best=False, required=False)
    with pytest.raises(StorageError, match="full"):
        writing.save(snapshot(2, weight, weight), best=False, required=True)
    assert not writing.written()


def test_without_a_thread_it_is_on_disk_when_saving_returns() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    store.allowed.set()
    saver(store, asynchronous=False).save(snapshot(1, weight, weight), best=False, required=False)
    assert store.saved


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_the_end_waits_for_what_is_on_its_way(error: type[Exception] | None) -> None:
    store, weight = SlowStore(), torch.zeros(1)
    with contextlib.suppress(RuntimeError), saver(store) as writing:
        writing.save(snapshot(1, weight, weight), best=False, required=False)
        threading.Timer(0.1, store.allowed.set).start()
        if error is not None:
            raise error
    assert store.saved


def test_an_interruption_waits_for_nothing() -> None:
    store, weight = SlowStore(), torch.zeros(1)
    with pytest.raises(KeyboardInterrupt), saver(store) as writing:
        writing.save(snapshot(1, weight, weight), best=False, required=False)
        raise KeyboardInterrupt
    assert not store.saved
    store.allowed.set()
    writing.join()

"""Write checkpoints while training continues: a copy is made at once, and a thread writes it to disk.

``Trainer`` decides when, and what a checkpoint says about the run.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt.devices.kinds import device_of
from nmt.errors import StorageError, quantity
from nmt.storage.checkpoints import CheckpointInfo, TrainingState
from nmt.training.checkpoints.store import CheckpointStore, Snapshot

_LISTENING = 1.0  # seconds between looks for a signal


@dataclass
class CheckpointWriter:
    """Write snapshots to a store, one at a time. A ``with`` block ends when the last one is on disk, or at once after a
    second Ctrl-C.

    The run ends after ``max_failed_saves`` failures in a row, and with a failure ``max_unsaved_minutes`` after the last
    checkpoint: more updates would only be lost.
    """

    store: CheckpointStore
    asynchronous: bool
    clock: Callable[[], float] = time.monotonic
    newest: CheckpointInfo | None = None  # the last snapshot, or the checkpoint that the run resumes from
    failures: int = 0  # in a row
    _saved_at: float = field(init=False)  # when the last checkpoint was on disk, or the run began
    _pending: Future[None] | None = None
    _written: list[tuple[CheckpointInfo, Path]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._saved_at = self.clock()

    def save(self, snapshot: Snapshot, *, best: bool) -> None:
        """Write a snapshot. With the last one of a run, it is on disk when this returns, or an error is raised."""
        self.newest = snapshot.info.joined(self.newest)
        snapshot = replace(snapshot, info=self.newest)
        ends_run = bool({"final", "signal", "callback"} & set(self.newest.reasons))
        self.join()
        options, failures, minutes = self.store.options, self.failures + 1, (self.clock() - self._saved_at) / 60
        last_try = failures >= options.max_failed_saves or minutes >= (options.max_unsaved_minutes or math.inf)
        if self.asynchronous and not (ends_run or last_try):
            self._pending = _started(partial(self._write, _copied(snapshot), best=best, required=False))
            return
        try:
            self._write(snapshot, best=best, required=ends_run or last_try)
        except StorageError as error:
            in_a_row = f"{quantity(failures, 'checkpoint')} in a row could not be written within {minutes:.0f} minutes"
            what = "the last checkpoint of the run could not be written" if ends_run else in_a_row
            last = self.store.newest()
            left = "there is no checkpoint" if last is None else f"the newest checkpoint is {last}"
            raise StorageError(f"{what}: {error}; {left}") from error

    def written(self) -> list[tuple[CheckpointInfo, Path]]:
        """Return the checkpoints that have been written since the last call."""
        if self._pending is not None and not self._pending.done():
            return []
        self.join()
        written, self._written = self._written, []
        return written

    def last_good(self, until: float | None) -> str:
        """Name the newest checkpoint of an update up to ``until``, for a message; None: no checkpoint is good."""
        self.join()
        good = None if until is None else self.store.newest(until)
        if good is None:
            return "there is no good checkpoint"
        advice = "" if good == self.store.newest() else " (to resume from it, delete the newer ones)"
        return f"the last good checkpoint is {good}{advice}"

    def join(self) -> None:
        """Wait until no snapshot is being written."""
        pending, self._pending = self._pending, None
        if pending is not None:
            _await(pending)
            pending.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pending is not None and not (kind and issubclass(kind, KeyboardInterrupt)):
            _await(self._pending)

    def _write(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        path = self.store.save(snapshot, best=best, required=required)
        self.failures = self.failures + 1 if path is None else 0
        if path is not None:
            self._saved_at = self.clock()
            self._written.append((snapshot.info, path))


def _await(pending: Future[None]) -> None:
    """Wait in short intervals: Python would sleep through a signal that comes just before it waits."""
    while not wait([pending], _LISTENING).done:
        continue


def _started(action: Callable[[], None]) -> Future[None]:
    """Run ``action`` in a thread that does not keep the process alive, unlike those of an executor."""
    future: Future[None] = Future()

    def work() -> None:
        try:
            action()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="checkpoint", daemon=True).start()
    return future


def _copied(snapshot: Snapshot) -> Snapshot:
    """Return a copy on the CPU, which further training does not change."""
    model, tensors = (_on_cpu(source) for source in (snapshot.model, snapshot.training.tensors))
    training = TrainingState(tensors, copy.deepcopy(snapshot.training.values))
    return replace(snapshot, model=model, training=training)


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies. Some optimizers count their steps on the CPU."""
    by_device: dict[torch.device, list[str]] = {}
    for name, tensor in tensors.items():
        by_device.setdefault(tensor.device, []).append(name)
    copies: dict[str, Tensor] = {}
    for device, names in by_device.items():
        copies |= zip(names, device_of(device).copied([tensors[name].detach() for name in names]))
    return {name: copies[name] for name in tensors}

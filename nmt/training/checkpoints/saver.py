"""Checkpoints written while training goes on: a copy is made at once, a thread brings it to disk."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt.storage.checkpoints import CheckpointInfo, TrainingState
from nmt.training.checkpoints.store import CheckpointStore, Snapshot

Written = tuple[CheckpointInfo, Path]


class Saver:
    """Hands snapshots to a store, one after the other. Only one is ever on its way: the next waits for it.

    A ``with`` block ends when nothing is on its way any more; that of a second Ctrl-C at once.
    """

    def __init__(self, store: CheckpointStore, *, asynchronous: bool) -> None:
        self.store = store
        self._asynchronous = asynchronous
        self._pending: Future[None] | None = None
        self._written: list[Written] = []

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        """``required``: the run ends with it, so it is on disk when this returns, or an error is raised."""
        self.join()
        if not self._asynchronous or required:
            self._write(snapshot, best=best, required=required)
        else:
            self._pending = _begun(partial(self._write, _copied(snapshot), best=best, required=False))

    def written(self) -> list[Written]:
        """The checkpoints that have come to disk since this was last asked."""
        if self._pending is not None and not self._pending.done():
            return []
        self.join()
        written, self._written = self._written, []
        return written

    def join(self) -> None:
        """Wait until nothing is on its way."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def last(self) -> Path | None:
        """The newest checkpoint on disk."""
        self.join()
        return self.store.last()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pending is not None and not (kind and issubclass(kind, KeyboardInterrupt)):
            wait([self._pending])

    def _write(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        path = self.store.save(snapshot, best=best, required=required)
        if path is not None:
            self._written.append((snapshot.info, path))


def _begun(action: Callable[[], None]) -> Future[None]:
    """Do it in a thread that does not keep the process alive, as those of an executor do."""
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
    """On the CPU, and untouched by further training."""
    training = TrainingState(_copies(snapshot.training.tensors), copy.deepcopy(snapshot.training.values))
    return replace(snapshot, model=_copies(snapshot.model), training=training)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }

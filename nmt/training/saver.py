"""Checkpoints written while training goes on: a copy is made at once, a thread brings it to disk."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nmt.storage.checkpoints import CheckpointInfo, TrainingState
from nmt.training.store import CheckpointStore, Snapshot

Written = tuple[CheckpointInfo, Path]


class Saver:
    """Hands snapshots to a store, one after the other. Only one is ever on its way: the next waits for it."""

    def __init__(self, store: CheckpointStore, *, asynchronous: bool) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "checkpoint") if asynchronous else None
        self._pending: Future[None] | None = None
        self._written: list[Written] = []

    @property
    def folder(self) -> Path:
        return self._store.folder

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        """``required``: the run ends with it, so it is on disk when this returns, or an error is raised."""
        self.settle()
        if self._thread is None or required:
            self._write(snapshot, best=best, required=required)
        else:
            self._pending = self._thread.submit(self._write, _copied(snapshot), best=best, required=False)

    def written(self) -> list[Written]:
        """The checkpoints that have come to disk since this was last asked."""
        if self._pending is not None and not self._pending.done():
            return []
        self.settle()
        written, self._written = self._written, []
        return written

    def settle(self) -> None:
        """Wait until nothing is on its way."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def last(self) -> Path | None:
        """The newest checkpoint on disk."""
        self.settle()
        return self._store.last()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _write(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        path = self._store.save(snapshot, best=best, required=required)
        if path is not None:
            self._written.append((snapshot.info, path))


def _copied(snapshot: Snapshot) -> Snapshot:
    """On the CPU, and untouched by further training."""
    training = TrainingState(_copies(snapshot.training.tensors), copy.deepcopy(snapshot.training.values))
    return replace(snapshot, model=_copies(snapshot.model), training=training)


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }

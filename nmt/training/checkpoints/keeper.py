"""A learner on its way into checkpoints and back: what is stored, and what must hold before it is.

They are written while training goes on: a copy is made at once, a thread brings it to disk.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.distributed.together import digest
from nmt.errors import Diverged, NMTError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState, load_parameters
from nmt.training.checkpoints import optimizer_state
from nmt.training.checkpoints.resume import Facts, Past, RunState
from nmt.training.checkpoints.store import Cadence, CheckpointStore, Snapshot
from nmt.training.loop.learner import Learner

logger = logging.getLogger("nmt.training")

LESS_HASTE = "a lower --lr, a longer --warmup-updates or --clip-norm 1 may help"


@dataclass
class Saver:
    """Hands snapshots to a store, one after the other. Only one is ever on its way: the next waits for it. A ``with``
    block ends when nothing is on its way any more; that of a second Ctrl-C at once."""

    store: CheckpointStore
    asynchronous: bool
    _pending: Future[None] | None = None
    _written: list[tuple[CheckpointInfo, Path]] = field(default_factory=list)

    def save(self, snapshot: Snapshot, *, best: bool, required: bool) -> None:
        """``required``: the run ends with it, so it is on disk when this returns, or an error is raised."""
        self.join()
        if not self.asynchronous or required:
            self._write(snapshot, best=best, required=required)
        else:
            self._pending = _begun(partial(self._write, _copied(snapshot), best=best, required=False))

    def written(self) -> list[tuple[CheckpointInfo, Path]]:
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
    model, tensors = (
        {name: one.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, one in part.items()}
        for part in (snapshot.model, snapshot.training.tensors)
    )
    training = TrainingState(tensors, copy.deepcopy(snapshot.training.values))
    return replace(snapshot, model=model, training=training)


@dataclass
class Keeper:
    """Takes snapshots of a learner for a saver, and puts one back."""

    learner: Learner
    saver: Saver
    cadence: Cadence
    facts: Facts
    last: CheckpointInfo | None = None  # the last checkpoint of the run, or the one that it goes on from

    def save(
        self, state: RunState, reasons: tuple[str, ...], scores: Mapping[str, float], improved: bool, **values: Any
    ) -> None:
        """Write a checkpoint; ``values`` are the state of whatever is neither the run's nor the learner's."""
        learner, world = self.learner, self.learner.world
        self.last = CheckpointInfo(state.update, state.epoch, reasons, scores, self.facts.lasting()).joined(self.last)
        self._require_finite(state.update)
        self._require_agreement(state.update)
        required = bool({"final", "signal"} & set(self.last.reasons))
        with learner.evaluating() as training_weights:
            tensors, optimizer = optimizer_state.pack(learner.optimizer)
            named = _prefixed("optimizer.", tensors) | _prefixed("training_weights.", training_weights)
            named |= _prefixed("criterion.", learner.step.criterion.state_dict())
            values |= {"run": asdict(state), "optimizer": optimizer, "arithmetic": learner.arithmetic.state()}
            training = TrainingState(world.gathered(named), values | asdict(self.facts))
            snapshot = Snapshot(self.last, world.gathered(learner.step.model.state_dict()), training)
            world.on_main(lambda: self.saver.save(snapshot, best=improved, required=required))

    def put_back(self, past: Past, *, afresh: bool) -> None:
        """The state of model, criterion and arithmetic, and unless it begins ``afresh`` of an optimizer of the same rule."""
        learner, tensors, values = self.learner, past.training.tensors, past.training.values
        self.last = past.stored.info
        self._load(learner.step.model, past.stored.model, past)
        self._load(learner.step.criterion, _under("criterion.", tensors), past)
        learner.arithmetic.restore(values["arithmetic"])
        same_rule = not past.changes("optimizer.", "parameters.")
        if afresh:
            logger.info("the optimizer begins afresh, from the weights of the checkpoint's model")
        elif same_rule or "optimizer.name" not in past.changed:
            place, entries = learner.world.placed, _under("optimizer.", tensors)
            numbers = optimizer_state.unpack(
                learner.optimizer, entries, values["optimizer"], groups=same_rule, place=place
            )
            if numbers is not None:
                optimizer_state.resume_training(learner.optimizer, _under("training_weights.", tensors), numbers, place)

    def diverged(self, what: str) -> Diverged:
        self.saver.join()
        last = self.saver.store.last()
        good = "there is no checkpoint yet" if last is None else f"the last good checkpoint is {last}"
        return Diverged(f"{what}; {good}; {LESS_HASTE}")

    def _require_finite(self, update: int) -> None:
        """No update mends a parameter that is not finite, so such a checkpoint would only spoil the run."""
        world = self.learner.world
        trained = ((name, one) for name, one in self.learner.step.named_parameters() if one.requires_grad)
        own = next((name for name, parameter in trained if not world.held(parameter).isfinite().all()), None)
        if found := [name for name in world.gather(own) if name is not None]:
            raise self.diverged(f"after update {update} the parameter {found[0]} is not finite")

    def _require_agreement(self, update: int) -> None:
        """Processes that train one model have the same parameters, bit for bit, or something went wrong unnoticed."""
        world = self.learner.world
        digests = world.gather(digest(world.replicas(self.learner.step.parameters())))
        if len(set(digests)) > 1:
            raise NMTError(
                f"after update {update} the processes have different parameters (sums {digests}); start again from the "
                f"last checkpoint, and look for a faulty device if it happens again"
            )

    def _load(self, module: nn.Module, tensors: Mapping[str, Tensor], past: Past) -> None:
        own, place = module.state_dict(), self.learner.world.placed
        placed = {name: place(tensor, own.get(name, tensor)) for name, tensor in tensors.items()}
        load_parameters(module, placed, str(past.stored.path))


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

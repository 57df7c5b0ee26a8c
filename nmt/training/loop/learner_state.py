"""What a checkpoint holds of a learner: taken, restored, and checked before it is stored."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nmt.distributed.replicated import digest
from nmt.errors import NMTError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState, load_parameters
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.checkpoints.store import Snapshot
from nmt.training.loop import optimizer_state
from nmt.training.loop.learner import Learner, Step, all_finite

logger = logging.getLogger("nmt.training")


@contextlib.contextmanager
def snapshot(
    learner: Learner, info: CheckpointInfo, values: Mapping[str, Any], good_until: int | None = None
) -> Iterator[Snapshot]:
    """Yield the state of a learner, whole on rank 0. Its tensors are those of the learner and hold the evaluation weights
    inside the ``with`` block only. ``values``: the rest of ``training.json``; ``good_until``: as in ``Snapshot``."""
    with learner.evaluating() as training_weights:
        tensors, optimizer = optimizer_state.pack(learner.optimizer)
        named = _prefixed("optimizer.", tensors) | _prefixed("training_weights.", training_weights)
        named |= _prefixed("criterion.", learner.step.criterion.state_dict())
        values = {**values, "optimizer": optimizer, "arithmetic": learner.arithmetic.state()}
        training = TrainingState(learner.world.gathered(named), values)
        yield Snapshot(info, learner.world.gathered(learner.step.model.state_dict()), training, good_until)


def checkpoint_bytes(step: Step, optimizer: torch.optim.Optimizer) -> int:
    """Return the bytes of the tensors of a checkpoint. Before the first update some optimizers hold none."""
    with optimizer_state.evaluation_mode(optimizer) as weights:
        trees = (step.model.state_dict(), step.criterion.state_dict(), optimizer_state.pack(optimizer)[0], weights)
    return sum(tensor.nbytes for tensors in trees for tensor in tensors.values())


def restore_learner(learner: Learner, point: ResumePoint, *, fresh_optimizer: bool) -> None:
    """Restore model, criterion and arithmetic, and the optimizer if its rule is the same; ``fresh_optimizer``: not that."""
    tensors, values = point.training.tensors, point.training.values
    _load(learner, learner.step.model, point.stored.model, point)
    _load(learner, learner.step.criterion, _under("criterion.", tensors), point)
    learner.arithmetic.restore(values["arithmetic"])
    same_options = not point.changes("optimizer.", "parameters.")
    if fresh_optimizer:
        logger.info("reset the optimizer; it starts from the parameters of the checkpoint's model")
    elif same_options or "optimizer.name" not in point.changed:
        place, entries = learner.world.scattered, _under("optimizer.", tensors)
        numbers = optimizer_state.unpack(
            learner.optimizer, entries, values["optimizer"], groups=same_options, place=place
        )
        if numbers is not None:
            optimizer_state.resume_training(learner.optimizer, _under("training_weights.", tensors), numbers, place)


def non_finite_parameter(learner: Learner) -> str | None:
    """Return the name of a parameter that is not finite on some rank: further updates cannot mend it."""
    trained = {name: parameter for name, parameter in learner.step.named_parameters() if parameter.requires_grad}
    finite = all_finite([learner.world.local_part(parameter) for parameter in trained.values()])
    own = next((name for name, is_finite in zip(trained, finite) if not is_finite), None)
    return next((name for name in learner.world.gather(own) if name is not None), None)


def require_agreement(learner: Learner, update: int) -> None:
    """Raise an error if ranks that train one model have different parameters: a fault that nothing else shows."""
    if learner.world.size == 1:
        return
    digests = learner.world.gather(digest(learner.world.replicas(learner.step.parameters())))
    if len(set(digests)) > 1:
        raise NMTError(
            f"after update {update} the ranks have different parameters (checksums {digests}); resume from the last "
            f"checkpoint, and look for a faulty device if it happens again"
        )


def _load(learner: Learner, module: nn.Module, tensors: Mapping[str, Tensor], point: ResumePoint) -> None:
    own, place = module.state_dict(), learner.world.scattered
    placed = {name: place(tensor, own.get(name, tensor)) for name, tensor in tensors.items()}
    load_parameters(module, placed, str(point.stored.path))


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

"""A learner as named tensors and plain values, and back again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from nmt.distributed.world import digest
from nmt.errors import NMTError
from nmt.storage.checkpoints import CheckpointInfo, StoredCheckpoint, TrainingState, load_parameters
from nmt.training.checkpoints import optimizer_state
from nmt.training.checkpoints.resume import Past
from nmt.training.checkpoints.store import Snapshot
from nmt.training.loop.learner import Learner
from nmt.training.loop.modes import resume_training

logger = logging.getLogger("nmt.training")

OPTIMIZER, TRAINING_WEIGHTS, CRITERION = "optimizer.", "training_weights.", "criterion."


@contextlib.contextmanager
def snapshot(learner: Learner, info: CheckpointInfo, values: Mapping[str, object]) -> Iterator[Snapshot]:
    """The learner and ``values`` as they are stored. The tensors are those of training: they hold inside the block."""
    gathered = learner.world.gathered
    with learner.evaluating() as training_weights:
        tensors, optimizer = optimizer_state.pack(learner.optimizer)
        named = _prefixed(OPTIMIZER, tensors) | _prefixed(TRAINING_WEIGHTS, training_weights)
        named |= _prefixed(CRITERION, learner.step.criterion.state_dict())
        own = {"arithmetic": learner.arithmetic.state(), "optimizer": optimizer}
        training = TrainingState(gathered(named), {**values, **own})
        yield Snapshot(info, gathered(learner.step.model.state_dict()), training)


def put_back(learner: Learner, past: Past, *, afresh: bool) -> None:
    """The state of model, criterion and arithmetic, and of the optimizer if its rule is the same; ``afresh``: not of it."""
    tensors = past.training.tensors
    _load(learner, learner.step.model, past.stored.model, past.stored)
    _load(learner, learner.step.criterion, _under(CRITERION, tensors), past.stored)
    learner.arithmetic.restore(past.training.values["arithmetic"])
    if afresh:
        logger.info("the optimizer begins afresh, from the weights of the checkpoint's model")
        return
    same_rule = not past.changes("optimizer.", "parameters.")
    if same_rule or "optimizer.name" not in past.changed:
        place, entries = learner.world.placed, past.training.values["optimizer"]
        numbers = optimizer_state.unpack(
            learner.optimizer, _under(OPTIMIZER, tensors), entries, groups=same_rule, place=place
        )
        if numbers is not None:
            resume_training(learner.optimizer, _under(TRAINING_WEIGHTS, tensors), numbers, place)


def not_finite(learner: Learner) -> str | None:
    """The name of a parameter that is not finite, if there is one: no update mends it."""
    held = learner.world.held
    trained = ((name, one) for name, one in learner.step.named_parameters() if one.requires_grad)
    own = next((name for name, parameter in trained if not held(parameter).isfinite().all()), None)
    return next((name for name in learner.world.gather(own) if name is not None), None)


def require_agreement(learner: Learner, update: int) -> None:
    """Processes that train one model have the same parameters, bit for bit, or something went wrong unnoticed."""
    world = learner.world
    digests = world.gather(digest(world.replicas(learner.step.parameters())))
    if len(set(digests)) > 1:
        raise NMTError(
            f"after update {update} the processes have different parameters (sums {digests}); start again from the last "
            f"checkpoint, and look for a faulty device if it happens again"
        )


def _load(learner: Learner, module: nn.Module, tensors: Mapping[str, Tensor], stored: StoredCheckpoint) -> None:
    own = module.state_dict()
    placed = {name: learner.world.placed(tensor, own.get(name, tensor)) for name, tensor in tensors.items()}
    load_parameters(module, placed, str(stored.path))


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

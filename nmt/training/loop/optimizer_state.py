"""An optimizer's state as named tensors and a JSON tree (nothing is pickled), and the two kinds of weights of some.

Schedule-free optimizers, and any with a moving average, train at other weights than those that are evaluated and stored in
the model file. Switching to evaluation and back is arithmetic, and rounds. A run must not depend on how often it is
validated or saved, so the training weights are kept meanwhile, stored with the optimizer's state, and put back bit for bit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from nmt.errors import DataError, quantity
from nmt.interface import SupportsModes
from nmt.optim.moving_average import COUNTER, MovingAverage

logger = logging.getLogger("nmt.training")

OF_THE_DEVICE = ("fused", "foreach", "capturable")  # entries of groups that depend on the device


def pack(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors by ``<parameter number>.<entry>``, and everything else as a JSON tree."""
    tree = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, entries in tree["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{parameter}.{name}"] = value
    groups = [
        {key: value for key, value in group.items() if key not in ("params", *OF_THE_DEVICE)}
        for group in tree["param_groups"]
    ]
    return tensors, {"numbers": numbers, "groups": groups}


def unpack(
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
    *,
    groups: bool,
    place: Callable[[Tensor, Tensor], Tensor] = lambda tensor, parameter: tensor,
) -> dict[int, int] | None:
    """Restore the state that ``pack`` returned. ``groups``: with the groups' own entries (learning rates, counters).

    Without these, the groups and the trained parameters may have changed: every parameter with a stored state of its rule
    gets it, and the others start without one. An optimizer that averages weights as part of its rule (``SupportsModes``)
    counts in its groups, so it starts afresh from the average. ``place`` converts a stored tensor to the part that this
    rank holds. Return the present number of each stored parameter, or None if the optimizer starts afresh.
    """
    if not groups and isinstance(optimizer, SupportsModes) and not isinstance(optimizer, MovingAverage):
        logger.info("reset the optimizer to the averaged weights, because its options or parameters changed")
        return None
    tree = optimizer.state_dict()
    same = _owners(values["groups"]) == _owners(tree["param_groups"])
    if groups and not same:
        raise DataError("the checkpoint's optimizer state is for other parameters; resume with --reset-optimizer")
    parameters = _parameters(optimizer)
    numbers = {n: n for n in range(len(parameters))} if same else _by_name(values["groups"], tree["param_groups"])
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *values["numbers"].items()]:
        parameter, _, name = key.partition(".")
        if int(parameter) in numbers:
            own = numbers[int(parameter)]
            state.setdefault(own, {})[name] = place(value, parameters[own]) if isinstance(value, Tensor) else value
    if groups:
        for group, stored in zip(tree["param_groups"], values["groups"]):
            group.update({key: value for key, value in stored.items() if key not in OF_THE_DEVICE})
    elif isinstance(optimizer, MovingAverage):  # an average that counts from 1 again would be lost at once
        for group in tree["param_groups"]:
            group[COUNTER] = max(stored.get(COUNTER, 0) for stored in values["groups"])
    optimizer.load_state_dict({"state": state, "param_groups": tree["param_groups"]})
    return numbers


def _owners(groups: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    """Return the parameter names of each group, and its rule if the optimizer has several."""
    return [(group.get("param_names"), group.get("rule")) for group in groups]


def _by_name(stored: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return the present number of each stored parameter; torch numbers them through all groups."""
    if any("param_names" not in group for group in (*stored, *current)):
        raise DataError(
            "the checkpoint's optimizer state is for other parameters and has no names to match them; resume with "
            "--reset-optimizer"
        )
    now, before = _numbered(current), _numbered(stored)
    fresh, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    if fresh or gone:
        start, removed = "starts" if fresh == 1 else "start", quantity(gone, "removed parameter")
        logger.info(
            f"optimizer state: {quantity(fresh, 'new parameter')} {start} without one, that of {removed} is dropped"
        )
    return {before[owned]: now[owned] for owned in before if owned in now}


def _numbered(groups: Sequence[Mapping[str, Any]]) -> dict[tuple[str, Any], int]:
    """Return the number of each parameter by its name and rule."""
    owners = [(name, rule) for names, rule in _owners(groups) for name in names]
    return {owner: number for number, owner in enumerate(owners)}


def training_mode(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, SupportsModes):
        optimizer.train()


@contextlib.contextmanager
def evaluation_mode(optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Tensor]]:
    """Set the parameters to the evaluation weights. Yield the training weights by number; empty if they are the same."""
    if not isinstance(optimizer, SupportsModes):
        yield {}
        return
    kept = {str(number): parameter.detach().clone() for number, parameter in enumerate(_parameters(optimizer))}
    optimizer.eval()
    try:
        yield kept
    finally:
        optimizer.train()
        _put(optimizer, kept)


def resume_training(
    optimizer: torch.optim.Optimizer,
    kept: Mapping[str, Tensor],
    numbers: Mapping[int, int],
    place: Callable[[Tensor, Tensor], Tensor] = lambda tensor, parameter: tensor,
) -> None:
    """Set the parameters to the stored training weights that ``evaluation_mode`` yielded.

    ``numbers``: the present number of each stored parameter. Parameters without stored training weights keep their values.
    ``place`` converts a stored tensor to the part that this rank holds.
    """
    training_mode(optimizer)
    parameters = _parameters(optimizer)
    weights = {numbers[int(name)]: tensor for name, tensor in kept.items() if int(name) in numbers}
    if any(parameters[number].shape != tensor.shape for number, tensor in weights.items()):
        raise DataError("the checkpoint's training weights are for other parameters; resume with --reset-optimizer")
    _put(optimizer, {str(number): place(tensor, parameters[number]) for number, tensor in weights.items()})


@torch.no_grad()
def _put(optimizer: torch.optim.Optimizer, kept: Mapping[str, Tensor]) -> None:
    parameters = _parameters(optimizer)
    for name, tensor in kept.items():
        parameters[int(name)].copy_(tensor)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

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

from nmt.errors import DataError
from nmt.interface import SupportsModes
from nmt.optim.moving_average import COUNTER, MovingAverage

logger = logging.getLogger("nmt.training")

OF_THE_DEVICE = ("fused", "foreach", "capturable")  # entries of groups that another device may need otherwise


def pack(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors named ``<parameter number>.<entry>``; everything else as ``values``."""
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
    """Give ``optimizer`` the state that ``pack`` took; ``groups``: also the groups' own entries (rates, counters).

    Without these the groups, and which parameters are trained, may be others than they were: every parameter that has
    a stored state of its rule gets it, and the rest begin without one. An optimizer that averages weights as a part of its
    rule (``SupportsModes``) counts in its groups, so it begins afresh then, from the average. ``place`` makes of a stored
    tensor what belongs beside the parameter that this process has. Returns the number that each stored parameter has
    now, or None if the optimizer begins afresh.
    """
    if not groups and isinstance(optimizer, SupportsModes) and not isinstance(optimizer, MovingAverage):
        logger.info("the optimizer begins afresh from the averaged weights, because its options or parameters changed")
        return None
    tree = optimizer.state_dict()
    same = _owners(values["groups"]) == _owners(tree["param_groups"])
    if groups and not same:
        raise DataError("the checkpoint's optimizer state belongs to other parameters")
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
    elif isinstance(optimizer, MovingAverage):  # an average that counted from one again would be forgotten at once
        for group in tree["param_groups"]:
            group[COUNTER] = max(stored.get(COUNTER, 0) for stored in values["groups"])
    optimizer.load_state_dict({"state": state, "param_groups": tree["param_groups"]})
    return numbers


def _owners(groups: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    """By group its parameters and, of an optimizer with several, its rule."""
    return [(group.get("param_names"), group.get("rule")) for group in groups]


def _by_name(stored: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """The number that each stored parameter has now; torch counts through the groups."""
    if any("param_names" not in group for group in (*stored, *current)):
        raise DataError("the checkpoint's optimizer state belongs to other parameters, and one of them has no names")
    now, before = _numbered(current), _numbered(stored)
    fresh, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    if fresh or gone:
        logger.info("the optimizer begins afresh with %d parameter tensors and forgets %d", fresh, gone)
    return {before[owned]: now[owned] for owned in before if owned in now}


def _numbered(groups: Sequence[Mapping[str, Any]]) -> dict[tuple[str, Any], int]:
    """The number of each parameter, by its name and its rule."""
    owned = [(name, rule) for names, rule in _owners(groups) for name in names]
    return {one: number for number, one in enumerate(owned)}


def training_mode(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, SupportsModes):
        optimizer.train()


@contextlib.contextmanager
def evaluation_mode(optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Tensor]]:
    """The parameters are those to evaluate. Yields the training weights by number, nothing if there is no difference."""
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
    """Leave evaluation in the restored state with the training weights that ``evaluation_mode`` gave.

    ``numbers``: those that the parameters have now, by those that they had. Without training weights (before there was
    an average) the parameters are left as they are; so is one that was not trained then. ``place`` makes of a stored
    tensor what stands in place of the parameter that this process has.
    """
    training_mode(optimizer)
    parameters = _parameters(optimizer)
    weights = {numbers[int(name)]: tensor for name, tensor in kept.items() if int(name) in numbers}
    if any(parameters[number].shape != tensor.shape for number, tensor in weights.items()):
        raise DataError("the checkpoint's training weights belong to other parameters")
    _put(optimizer, {str(number): place(tensor, parameters[number]) for number, tensor in weights.items()})


@torch.no_grad()
def _put(optimizer: torch.optim.Optimizer, kept: Mapping[str, Tensor]) -> None:
    parameters = _parameters(optimizer)
    for name, tensor in kept.items():
        parameters[int(name)].copy_(tensor)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

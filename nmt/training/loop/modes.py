"""Optimizers that train at other weights than those that are evaluated and stored in the model file: schedule-free ones,
and any with a moving average.

Switching to evaluation and back is arithmetic, and rounds. A run must not depend on how often it is validated or
saved, so the training weights are kept meanwhile, stored beside the optimizer's state, and put back bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from nmt.errors import DataError
from nmt.interface import SupportsModes


def training_mode(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, SupportsModes):
        optimizer.train()


@contextlib.contextmanager
def evaluation_mode(optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Tensor]]:
    """The parameters are those to evaluate. Yields the training weights by number, nothing if there is no difference."""
    if not isinstance(optimizer, SupportsModes):
        yield {}
        return
    kept = {name: parameter.detach().clone() for name, parameter in _numbered(optimizer).items()}
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
    parameters = _numbered(optimizer)
    weights = {str(numbers[int(name)]): tensor for name, tensor in kept.items() if int(name) in numbers}
    if any(parameters[name].shape != tensor.shape for name, tensor in weights.items()):
        raise DataError("the checkpoint's training weights belong to other parameters")
    _put(optimizer, {name: place(tensor, parameters[name]) for name, tensor in weights.items()})


@torch.no_grad()
def _put(optimizer: torch.optim.Optimizer, kept: Mapping[str, Tensor]) -> None:
    parameters = _numbered(optimizer)
    for name, tensor in kept.items():
        parameters[name].copy_(tensor)


def _numbered(optimizer: torch.optim.Optimizer) -> dict[str, Parameter]:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return {str(number): parameter for number, parameter in enumerate(parameters)}

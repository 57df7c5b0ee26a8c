"""Optimizers that train at other weights than those that are evaluated and stored in the model file (schedule-free).

Switching to evaluation and back is arithmetic, and rounds. A run must not depend on how often it is validated or
saved, so the training weights are kept meanwhile, stored beside the optimizer's state, and put back bit for bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

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


def resume_training(optimizer: torch.optim.Optimizer, kept: Mapping[str, Tensor]) -> None:
    """Leave evaluation in the restored state with the training weights that ``evaluation_mode`` gave."""
    training_mode(optimizer)
    if not isinstance(optimizer, SupportsModes):
        return
    if {name: kept[name].shape for name in kept} != {name: p.shape for name, p in _numbered(optimizer).items()}:
        raise DataError("the checkpoint's training weights belong to other parameters")
    _put(optimizer, kept)


@torch.no_grad()
def _put(optimizer: torch.optim.Optimizer, kept: Mapping[str, Tensor]) -> None:
    for name, parameter in _numbered(optimizer).items():
        parameter.copy_(kept[name])


def _numbered(optimizer: torch.optim.Optimizer) -> dict[str, Parameter]:
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return {str(number): parameter for number, parameter in enumerate(parameters)}

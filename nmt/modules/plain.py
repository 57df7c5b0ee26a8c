"""Modules as plain functions, for decoding.

A step computes one position of a few hypotheses, which takes less time than torch's modules take to be called: hooks, and
parameters looked up by name. Whoever takes many steps looks everything up once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

Function = Callable[..., Any]


@runtime_checkable
class Plain(Protocol):
    """A module with a faster way to do in evaluation what its ``forward`` does."""

    def plain(self) -> Function:
        """Holds for the parameters and the autocast of now."""
        ...


def plain(module: nn.Module) -> Function:
    if isinstance(module, Plain):
        return module.plain()
    if type(module) is nn.LayerNorm:
        shape, weight, bias = module.normalized_shape, module.weight, module.bias
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=module.eps)
    return module.forward


def computes_in_half(device: torch.device) -> bool:
    """Whether autocast decides there what a product is computed in."""
    return torch.is_autocast_enabled(device.type)

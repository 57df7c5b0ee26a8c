"""Layers one after the other, as whatever divides or repeats the work of a model layer by layer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

LayerType = TypeVar("LayerType", bound=nn.Module)


class Layers(nn.ModuleList, Generic[LayerType]):
    """torch's list of modules, all of one type."""

    def __init__(self, layers: Iterable[LayerType] = ()) -> None:
        super().__init__(layers)

    def __iter__(self) -> Iterator[LayerType]:
        return super().__iter__()  # type: ignore[return-value]


class Stack(Layers[LayerType]):
    """Layers of which each is called exactly once in a pass of training, as a module.

    The parameters of such a layer are needed while it is called and at no other time of a pass, and what happens in it
    can be computed again from its arguments. It may be given copies of lists and dataclasses: what it has to tell must
    be in its result, which callers do not change in place, or be told to an object. Search may call its ``step`` and
    other methods, any number of times.
    """


def stacked_layers(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of all stacks inside ``module`` that are not themselves part of such a layer, in their order."""
    for child in module.children():
        if isinstance(child, Stack):
            yield from child
        else:
            yield from stacked_layers(child)


def recompute_layers(module: nn.Module) -> int:
    """From now on the layers of all stacks keep their arguments alone for the backward pass, and run again in it.

    Chen et al. 2016, arXiv:1604.06174, section 4.1, with a segment for each layer. Random numbers are drawn again alike,
    so losses and gradients stay what they were, bit for bit. Returns the number of layers.
    """
    layers = list(stacked_layers(module))
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)  # no module around it: the names of parameters stay
    return len(layers)


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Intermediate results are not kept."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=True)

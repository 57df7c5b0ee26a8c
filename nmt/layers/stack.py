"""Stacks of layers, which compilation, recomputation and sharding handle layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

LayerType = TypeVar("LayerType", bound=nn.Module)


class Layers(nn.ModuleList, Generic[LayerType]):
    """A typed ``nn.ModuleList``."""

    def __init__(self, layers: Iterable[LayerType] = ()) -> None:
        super().__init__(layers)

    def __iter__(self) -> Iterator[LayerType]:
        return super().__iter__()  # type: ignore[return-value]


class Stack(Layers[LayerType]):
    """Layers that are each called as a module exactly once in a training pass.

    The parameters of a layer are needed only during its call, and its result can be recomputed from its arguments. A layer
    may receive copies of lists and dataclasses, so it returns all results, or stores them in an object that is passed by
    reference. Callers do not change results in place. Search may call ``step`` and other methods any number of times.
    """


def stacked_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of all outermost stacks in ``module``, in order."""
    for child in module.children():
        if isinstance(child, Stack):
            yield from child
        else:
            yield from stacked_layers(child)


def recompute_layers(module: nn.Module) -> int:
    """Make the layers of all stacks save only their arguments and recompute the rest in the backward pass.

    Chen et al. 2016, arXiv:1604.06174, section 4.1, with a segment for each layer. Random numbers are repeated, so losses
    and gradients are bit-identical. Return the number of layers.
    """
    layers = list(stacked_layers(module))
    for layer in layers:
        layer.forward = partial(recomputed, layer.forward)  # without a wrapper module, to keep parameter names
    return len(layers)


def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function without saving its intermediate results: the backward pass computes them again."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=True)

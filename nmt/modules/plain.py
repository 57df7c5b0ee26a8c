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

    plain_asks: frozenset[str]  # methods that it calls itself: a subclass may replace them

    def plain(self) -> Function:
        """Holds for the parameters and the autocast of now."""
        ...


def overridden(kind: type, owner: type) -> frozenset[str]:
    """Methods and attributes of ``owner`` that a subclass replaced on the way to ``kind``.

    A shortcut that writes a formula of ``owner`` out again holds only where nothing of that formula was replaced.
    """
    younger = kind.__mro__[: kind.__mro__.index(owner)]
    names = {name for each in younger for name in vars(each) if hasattr(owner, name)}
    return frozenset(name for name in names if not name.startswith("__") and name != "_abc_impl")


def owner_of(module: object, name: str) -> type:
    """The class whose definition of a method a module has."""
    return next(kind for kind in type(module).__mro__ if name in vars(kind))


def require_own(module: object, shortcut: str, *formula: str) -> None:
    """Refuse a subclass that replaced methods of a formula, but not the one that writes it out again for steps."""
    owner = owner_of(module, shortcut)
    replaced = overridden(type(module), owner) & {*formula}
    if replaced:
        raise TypeError(
            f"{type(module).__name__} overrides {', '.join(sorted(replaced))}, but not {shortcut}, by which "
            f"{owner.__name__} computes the same in steps: it would translate with another function than it learns; "
            f"override {shortcut} too"
        )


def plain(module: nn.Module) -> Function:
    """The module's own shortcut, or ``forward`` where a subclass replaced something that the shortcut leaves out."""
    if isinstance(module, Plain) and overridden(type(module), owner_of(module, "plain")) <= module.plain_asks:
        return module.plain()
    if type(module) is nn.LayerNorm:
        shape, weight, bias = module.normalized_shape, module.weight, module.bias
        return partial(torch.layer_norm, normalized_shape=shape, weight=weight, bias=bias, eps=module.eps)
    return module.forward


def computes_in_half(device: torch.device) -> bool:
    """Whether autocast decides there what a product is computed in."""
    return torch.is_autocast_enabled(device.type)

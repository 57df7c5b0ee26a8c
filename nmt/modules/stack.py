"""Layers one after the other, as whatever divides or repeats the work of a model layer by layer sees them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn


class Stack(nn.ModuleList):
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

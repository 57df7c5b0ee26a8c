"""Weight normalisation: Salimans and Kingma 2016, arXiv:1602.07868. Shapes: I inputs, O outputs."""

from __future__ import annotations

from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


class NormalisedLinear(nn.Module):
    """A linear map whose weights for each output are w = g v / |v| (equation 2): their length g is learned apart.

    v starts at N(0, ``std``^2), g at |v|, so that w starts as v; the bias starts at 0. [..., I] -> [..., O]
    """

    undecayed = ("length",)  # the gain of a norm

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.length = nn.Parameter(self.direction.detach().norm(dim=1, keepdim=True))  # [O, 1]
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def weight(self) -> Tensor:
        """[O, I], computed anew each time."""
        weight: Tensor = self.direction * (self.length / self.direction.norm(dim=1, keepdim=True))
        return weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class FixedLinear(nn.Module):
    """The linear map that a normalised one is at this moment. No parameters: it does not learn."""

    def __init__(self, linear: NormalisedLinear) -> None:
        super().__init__()
        self.weight = linear.weight.detach()
        self.bias = linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def with_fixed_weights(module: Module) -> Module:
    """The same module for inference, with each normalised weight computed once; it shares everything else.

    Where a step computes one position, normalising a matrix can cost more than multiplying with it.
    """
    if isinstance(module, NormalisedLinear):
        return cast(Module, FixedLinear(module))
    twin = object.__new__(type(module))  # copy.copy would make a new module of one whose parameters are divided
    twin.__dict__.update(module.__dict__)
    twin._modules = {
        name: None if child is None else with_fixed_weights(child) for name, child in module._modules.items()
    }
    return twin

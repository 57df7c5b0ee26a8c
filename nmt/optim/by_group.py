"""The base of optimizers written here: a step treats all parameters of a group at once, one group after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class GroupOptimizer(torch.optim.Optimizer):
    """Subclasses say what a step does to one group."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self.step_group(parameters, [parameter.grad for parameter in parameters], group)

    @abstractmethod
    def step_group(self, parameters: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Change ``parameters`` in place; ``group`` has the options."""

    def running(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        """A tensor of the state of each parameter, zero at first."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter)
        return [self.state[parameter][name] for parameter in parameters]

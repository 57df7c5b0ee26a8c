"""An exponential moving average of the parameters, for any optimizer: Polyak and Juditsky 1992, with decay.

After update t the average is d * average + (1 - d) * parameter, with d = min(decay, (1 + t) / (10 + t)): a small d at first
removes the random initialization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.interface import SupportsModes

COUNTER = "averaged_updates"  # in each parameter group, so that checkpoints store it


class MovingAverage(torch.optim.Optimizer):
    """Train by ``rule``, evaluate the average.

    In evaluation mode the parameters are the average, which is not stored elsewhere. ``train`` initializes the average from
    the parameters. The caller of ``eval`` saves the training weights, as ``nmt.training.loop.optimizer_state`` does.
    Skipped steps do not count.
    """

    def __init__(self, rule: torch.optim.Optimizer, decay: float) -> None:
        if isinstance(rule, SupportsModes):
            raise UsageError(
                f"training.ema_decay={decay}, but this optimizer averages weights itself; omit --ema-decay"
            )
        super().__init__(rule.param_groups, rule.defaults)
        self.param_groups, self.state = rule.param_groups, rule.state  # shared, not copied
        for group in self.param_groups:
            group[COUNTER] = 0
        self._rule = rule
        self._decay = decay
        self._average: list[Tensor] | None = None  # None: in evaluation mode

    def train(self) -> None:
        if self._average is None:
            self._average = [parameter.detach().clone() for parameter in self._parameters()]

    @torch.no_grad()
    def eval(self) -> None:
        if self._average is not None:
            for parameter, average in zip(self._parameters(), self._average):
                parameter.copy_(average)
            self._average = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        assert self._average is not None, "training begins with train()"
        self._rule.step()
        for group in self.param_groups:
            group[COUNTER] += 1
        updates = self.param_groups[0][COUNTER]
        torch._foreach_lerp_(self._average, self._parameters(), 1.0 - min(self._decay, (1 + updates) / (10 + updates)))

    def state_dict(self) -> dict[str, Any]:
        return self._rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._rule.load_state_dict(state_dict)
        self.param_groups, self.state = self._rule.param_groups, self._rule.state  # loading replaces both

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


def with_average(rule: torch.optim.Optimizer, decay: float | None) -> torch.optim.Optimizer:
    """Return ``rule`` with a moving average, or ``rule`` if ``decay`` is None."""
    return rule if decay is None else MovingAverage(rule, decay)

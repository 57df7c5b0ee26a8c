"""Adam at first, plain gradient descent from some update on: Wu et al. 2016 (GNMT), arXiv:1609.08144, section 8.3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import Parameter

from nmt.optim import APPLIED_RATE, ParameterGroups, optimizers
from nmt.optim.adam_then_sgd_config import AdamThenSgdConfig


class AdamThenSgd(torch.optim.Adam):
    """A schedule's factor applies to both rates: that of the descent is ``sgd_ratio`` times the group's.

    Updates are counted by Adam's own step counters, so a checkpoint holds all there is to know. Once it has switched,
    its moments are gone and it stays with gradient descent, even if a later start asks for more of Adam.
    """

    def __init__(self, groups: ParameterGroups, *, switch_update: int, sgd_ratio: float, **options: Any) -> None:
        super().__init__(groups, **options)
        self._switch_update = switch_update
        self._sgd_ratio = sgd_ratio

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        if self._switched():
            for group in self.param_groups:
                self._descend(group)
        else:
            super().step()

    def _switched(self) -> bool:
        states = [state for state in self.state.values() if state]
        if states and not any("exp_avg" in state for state in states):
            return True
        if max((int(state["step"]) for state in states), default=0) < self._switch_update:
            return False
        for parameter in self._parameters():
            self.state[parameter] = {"step": torch.tensor(float(self._switch_update))}
        return True

    def _descend(self, group: dict[str, Any]) -> None:
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not parameters:
            return
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
        group[APPLIED_RATE] = group["lr"] * self._sgd_ratio
        torch._foreach_add_(parameters, gradients, alpha=-group[APPLIED_RATE])

    def _parameters(self) -> Iterator[Parameter]:
        return (parameter for group in self.param_groups for parameter in group["params"])


@optimizers.register("adam_then_sgd", AdamThenSgdConfig)
def build(config: AdamThenSgdConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    first, second = config.betas
    return AdamThenSgd(
        groups,
        switch_update=config.switch_update,
        sgd_ratio=config.sgd_lr / config.base_rate,
        lr=config.base_rate,
        betas=(first, second),
        eps=config.eps,
        weight_decay=config.weight_decay,
    )

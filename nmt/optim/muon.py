"""Muon for the matrices between the layers, AdamW for the rest: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.

A matrix moves along its momentum made orthogonal by Newton-Schulz iterations, times 0.2 sqrt(longer side): its elements
then move as far as AdamW's do, so that both take the same rate and weight decay (Liu et al. 2025, arXiv:2502.16982,
section 2.2). Both rules are torch's.

Muon is for matrices that map one hidden vector to another. Embeddings, the output layer and starting states, which the
names tell, go to AdamW, and so does whatever is not a matrix: norms, biases, experts and convolutions stored with three or
four axes. A matrix is taken as the model stores it: the joint projection of queries, keys and values, or the gates of an
LSTM, is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.nn import Parameter

from nmt.optim import ParameterGroups, optimizers
from nmt.optim.fused import runs_fused
from nmt.optim.muon_config import MuonConfig
from nmt.optim.parameter_groups import shown


class MuonWithAdamW(torch.optim.Optimizer):
    """Two of torch's optimizers over one set of groups and one state, which are this object's."""

    def __init__(self, matrices: ParameterGroups, rest: ParameterGroups, config: MuonConfig) -> None:
        first, second = config.betas
        rate, decay = config.base_rate, config.weight_decay
        self._rules: dict[str, torch.optim.Optimizer] = {}
        if rest:
            self._rules["adamw"] = torch.optim.AdamW(
                rest, lr=rate, betas=(first, second), eps=config.eps, weight_decay=decay, fused=runs_fused(rest)
            )
        if matrices:
            self._rules["muon"] = torch.optim.Muon(
                matrices,
                lr=rate,
                weight_decay=decay,
                momentum=config.momentum,
                nesterov=True,
                ns_steps=config.iterations,
                adjust_lr_fn="match_rms_adamw",
            )
        groups = [{**group, "rule": name} for name, rule in self._rules.items() for group in rule.param_groups]
        groups.sort(key=lambda group: group["lr"] != rate)  # the first has the rate that is reported
        super().__init__(groups, {"lr": rate, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the trainer computes gradients before the step"
        for name, rule in self._rules.items():  # loading a state replaces both, so they are handed over each time
            rule.param_groups = [group for group in self.param_groups if group["rule"] == name]
            rule.state = self.state
            rule.step()


def for_muon(name: str, parameter: Parameter, adamw_names: Sequence[str]) -> bool:
    """Whether a parameter is a matrix between hidden vectors."""
    spared = any(fnmatchcase(shown(name), pattern) for pattern in adamw_names)
    return parameter.dim() == 2 and min(parameter.shape) > 1 and not spared


@optimizers.register("muon", MuonConfig)
def build(config: MuonConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    matrices: ParameterGroups = []
    rest: ParameterGroups = []
    for group in groups:
        parts: dict[bool, list[Any]] = {True: [], False: []}
        for name, parameter in group["params"]:
            parts[for_muon(name, parameter, config.adamw_names)].append((name, parameter))
        matrices += [{**group, "params": parts[True]}] if parts[True] else []
        rest += [{**group, "params": parts[False]}] if parts[False] else []
    return MuonWithAdamW(matrices, rest, config)

"""Low-rank adapters: Hu et al. 2021 (LoRA), arXiv:2106.09685, section 4.1, for any matrix of any model.

An adapted weight W is read as W + alpha / rank * B A, where only A and B are trained. It is a parametrization of the weight
itself (``torch.nn.utils.parametrize``), so a module that reads ``weight`` without calling its owner reads the sum too. A
weight with more than two axes is adapted as a matrix of its first axis and all others.

The ``state_dict`` of an adapted model holds buffers and what is trained: A as ``<weight>.lora_down``, B as
``<weight>.lora_up``. The rest is the base model's.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

M = TypeVar("M", bound=nn.Module)

# torch's names of a base weight and of its adapter, behind the path of the module
_PARAMETRIZED = re.compile(r"parametrizations\.(\w+)\.(?:original|0(\.lora_up|\.lora_down))$")


class LowRank(nn.Module):
    """Add a product of two narrow matrices to a weight.

    Dropout zeroes columns of A: features of the input as in the paper, but the same ones for a whole micro-batch.
    """

    not_maps = ("lora_down", "lora_up")  # for optimizers that treat maps between hidden vectors in a special way

    def __init__(self, weight: Tensor, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        outputs, inputs = weight.size(0), weight[0].numel()
        rank = min(rank, outputs, inputs)  # more would only add parameters
        self.lora_down = nn.Parameter(weight.new_empty(rank, inputs))
        self.lora_up = nn.Parameter(weight.new_zeros(outputs, rank))
        nn.init.kaiming_uniform_(self.lora_down, a=math.sqrt(5))
        self.scale, self.dropout = alpha / rank, dropout
        self._computed = dict[Any, tuple[Any, Tensor]]()  # by modes: a criterion may sample translations within a pass

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sum, which is computed once for all modules and steps that read it, with one dropout mask."""
        modes = self.training, torch.is_grad_enabled()
        versions = weight._version, self.lora_up._version, self.lora_down._version
        if self._computed.get(modes, (None,))[0] != versions:
            down: Tensor = self.lora_down
            if self.training and self.dropout:
                down = down * F.dropout(down.new_ones(down.size(1)), self.dropout)
            self._computed[modes] = versions, weight + (self.scale * self.lora_up @ down).view_as(weight)
        return self._computed[modes][1]

    def __getstate__(self) -> dict[str, Any]:
        """Copies compute their own sum: torch cannot copy a tensor of a graph."""
        return {**self.__dict__, "_computed": {}}


def adapt(model: nn.Module, matrices: Sequence[Sequence[str]], rank: int, alpha: float, dropout: float) -> None:
    """Add an adapter to each matrix, given by its names in all modules that share it."""
    for names in matrices:
        weight = model.get_parameter(names[0])
        low_rank = LowRank(weight, rank, alpha, dropout)
        for name in names:
            path, _, own = name.rpartition(".")
            owner = model.get_submodule(path)
            parametrize.register_parametrization(owner, own, low_rank)
            if isinstance(owner, nn.RNNBase):  # torch gave it a class of its own
                type(owner).__deepcopy__ = _copied  # type: ignore[attr-defined]
    model.register_forward_pre_hook(_compute)
    model.register_state_dict_post_hook(_keep_what_is_trained)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(_add_the_base)  # type: ignore[no-untyped-call]


def start_pass(step: nn.Module, *_: Any) -> None:
    """Hook before a forward and backward pass of training: compute all weights anew, with new dropout masks."""
    for module in step.modules():
        if isinstance(module, LowRank):
            module._computed = {}
    _compute(step)


def _compute(model: nn.Module, *_: Any) -> None:
    """Hook before a forward pass: compute all weights outside of layers that a backward pass may run again."""
    for module in model.modules():
        for name in getattr(module, "parametrizations", ()):
            getattr(module, name)


def merged(model: M) -> M:
    """Return a copy of a model without adapters: they are added to its weights."""
    model = copy.deepcopy(model)
    sums = dict[int, nn.Parameter]()
    for module in list(model.modules()):
        weights = dict(getattr(module, "parametrizations", {}))
        for parts in weights.values():
            total = parts.eval()().detach()  # without dropout
            sums.setdefault(id(parts.original), nn.Parameter(total, parts.original.requires_grad))
        if weights:  # not torch's removal, which would change the class of the original as well
            module.__class__ = type(module).__bases__[0]
            del module.parametrizations
        for name, parts in weights.items():
            setattr(module, name, sums[id(parts.original)])
    for hooks in (model._forward_pre_hooks, model._state_dict_hooks, model._load_state_dict_pre_hooks):
        for number, hook in list(hooks.items()):
            if getattr(hook, "hook", hook) in (_compute, _keep_what_is_trained, _add_the_base):
                del hooks[number]
    return model


def _copied(layer: nn.RNNBase, memo: dict[int, Any]) -> nn.RNNBase:
    """Copy a recurrent layer, which keeps the last weights that it read: torch cannot copy those of a graph."""
    with torch.no_grad():
        layer._init_flat_weights()
    memo[id(layer)] = replica = type(layer).__new__(type(layer))
    replica.__dict__ = copy.deepcopy(layer.__dict__, memo)
    return replica


def stored_name(name: str) -> str:
    """Return the name in files and options of a parameter of an adapted module."""
    return _PARAMETRIZED.sub(lambda match: match[1] + (match[2] or ""), name)


def _keep_what_is_trained(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Hook of ``state_dict``."""
    frozen = {prefix + name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    kept = {stored_name(name): value for name, value in state.items() if name not in frozen}
    state.clear()
    state.update(kept)


def _add_the_base(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Hook of ``load_state_dict``: give torch its own names, and the frozen parameters that the model has already."""
    stored = {name.removeprefix(prefix): value for name, value in state.items()}
    own: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    own |= {name: buffer for name, buffer in model.named_buffers(remove_duplicate=False) if name in stored}
    unknown = stored.keys() - {stored_name(name) for name in own}
    state.clear()
    state.update({prefix + name: stored.get(stored_name(name), value) for name, value in own.items()})
    state.update({prefix + name: stored[name] for name in unknown})

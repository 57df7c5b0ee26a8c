"""An optimizer's state as named tensors and a JSON tree: nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nmt.errors import DataError


def pack(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors named ``<parameter number>.<entry>``; everything else as ``values``."""
    tree = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for parameter, entries in tree["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{parameter}.{name}"] = value
    groups = [{key: value for key, value in group.items() if key != "params"} for group in tree["param_groups"]]
    return tensors, {"numbers": numbers, "groups": groups}


def unpack(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], values: Mapping[str, Any], *, groups: bool
) -> None:
    """Give ``optimizer`` the state that ``pack`` took; ``groups``: also the groups' own entries (rates, counters)."""
    tree = optimizer.state_dict()
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *values["numbers"].items()]:
        parameter, _, name = key.partition(".")
        state.setdefault(int(parameter), {})[name] = value
    if [group.get("param_names") for group in values["groups"]] != [
        group.get("param_names") for group in tree["param_groups"]
    ]:
        raise DataError("the checkpoint's optimizer state belongs to other parameters")
    if groups:
        for group, stored in zip(tree["param_groups"], values["groups"]):
            group.update(stored)
    optimizer.load_state_dict({"state": state, "param_groups": tree["param_groups"]})

"""The number format of training's forward passes."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

from nmt.config.sections import Precision
from nmt.devices import require_bf16


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """The context of a forward pass in ``precision``; parameters, sums and the optimizer stay in float32."""
    if precision is Precision.fp32:
        return contextlib.nullcontext()
    require_bf16(device)
    return torch.autocast(device.type, dtype=torch.bfloat16)

"""Choosing where and in which number format the work is done. Row 2 of the layers: torch, and nothing of ours above."""

from __future__ import annotations

import torch

from nmt.config.sections import Precision
from nmt.errors import DeviceError, UsageError


def choose_device(name: str) -> torch.device:
    """The device that ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` means on this machine."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device.name={name} is none of auto, cpu, cuda, cuda:N (--device)") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"device.name={name} is none of auto, cpu, cuda, cuda:N (--device)")
    if device.type == "cuda":
        _require_cuda(name, device)
    return device


def precision_named(name: Precision | str) -> Precision:
    """A precision by its name, as Python code gives it."""
    if isinstance(name, Precision):
        return name
    if name not in Precision.__members__:
        raise UsageError(f"precision={name!r} is none of {', '.join(Precision.__members__)}")
    return Precision[name]


def parameter_type(device: torch.device, precision: Precision) -> torch.dtype:
    """The type that a model's parameters take for translating in ``precision``."""
    if precision is Precision.fp32:
        return torch.float32
    require_bf16(device)
    return torch.bfloat16


def require_bf16(device: torch.device) -> None:
    """Refuse a GPU that would only emulate bf16; every CPU computes in it, if slowly."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise DeviceError(f"{torch.cuda.get_device_name(device)} cannot compute in bf16; use --precision fp32")


def _require_cuda(name: str, device: torch.device) -> None:
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise DeviceError(
            f"device.name={name}, but no GPU can be used (torch {torch.__version__}, {built}); use --device cpu"
        )
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise DeviceError(f"device.name={name}, but there are only {torch.cuda.device_count()} GPUs, numbered from 0")

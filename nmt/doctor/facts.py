"""Versions, machine, settings and devices, for a bug report."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import Any

import torch

import nmt
from nmt.allocator import VARIABLES
from nmt.devices.faults import in_words, recorded_faults
from nmt.devices.kinds import device_of
from nmt.native.library import processor
from nmt.reporting.resources import available_memory
from nmt.threads import WAIT_VARIABLES, count_threads, processor_name, usable_cores

PACKAGES = ("torch", "hydra-core", "omegaconf", "sentencepiece", "sacrebleu", "numpy", "safetensors")
Facts = dict[str, dict[str, Any]]  # by subject and name


def facts(threads: int | None) -> Facts:
    """Return all facts. ``threads``: the option."""
    return {
        "versions": _versions(),
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processor": processor_name(),
            "cores": f"{usable_cores()} usable of {os.cpu_count()}",
            "memory left": _size(available_memory()),
            "C part of nmt": processor() or "not built here, or switched off",
        },
        "settings": {
            "threads": count_threads(threads),
            **{name: os.environ.get(name, "not set") for name in ("OMP_NUM_THREADS", *WAIT_VARIABLES, *VARIABLES)},
        },
        "devices": {str(device): _described(device) for device in devices()},
    }


def devices() -> list[torch.device]:
    """Return the CPU and all accelerators that torch can use."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return [torch.device("cpu")]
    count = torch.get_device_module(accelerator).device_count()
    return [torch.device("cpu"), *(torch.device(accelerator.type, number) for number in range(count))]


def _versions() -> dict[str, str]:
    versions = {"nmt": nmt.__version__, "Python": sys.version.partition(" ")[0]}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    versions["built for"] = ", ".join(
        f"{name} {version}" for name, version in (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip)) if version
    )
    return {name: version or "CPU only" for name, version in versions.items()}


def _described(device: torch.device) -> str:
    """Describe a device in a line."""
    kind = device_of(device)
    formats = ["bf16"] if kind.computes_bf16() else []
    formats += ["tf32"] if kind.computes_tf32() else []
    formats += ["fp16"] if kind.halves else []
    parts = [kind.hardware, ", ".join(["fp32", *formats])]
    if kind.driver:
        parts.append(f"driver {kind.driver}")
    if (own_memory := kind.most_memory()) is not None:
        parts.append(f"{_size(own_memory)} left")
    if faults := recorded_faults(device):
        parts.append(f"failed in --full: {in_words(faults)}")
    return "; ".join(parts)


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f} GiB"

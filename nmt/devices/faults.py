"""Fast paths that failed in nmt-doctor on a device: automatic selection avoids them.

``nmt-doctor --full`` writes the record. An entry is valid for the versions of torch and of the driver that were checked.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from nmt.devices.kinds import device_of
from nmt.threads import processor_name

logger = logging.getLogger("nmt.devices")


class FastPath(Enum):
    """A fast path that is selected automatically."""

    bf16 = "bf16"
    fp16 = "fp16"
    tf32 = "tf32"
    fused_attention = "fused attention"
    flat_attention = "attention without padding"
    fused_optimizer = "fused optimizer"
    queued_updates = "queued updates"


_avoided: dict[str, frozenset[FastPath]] = {}  # by kind of device


def avoids(device: torch.device, path: FastPath) -> bool:
    """Whether this process avoids a path."""
    return path in avoided(device)


def avoided(device: torch.device) -> frozenset[FastPath]:
    """Return the avoided paths: those set for the run, or else those of the record."""
    if device.type not in _avoided:
        faults = recorded_faults(device)
        if faults:
            logger.info("not selected automatically on %s, because nmt-doctor failed: %s", device, in_words(faults))
        avoid(device, faults)
    return _avoided[device.type]


def avoid(device: torch.device, paths: Iterable[FastPath]) -> None:
    """Set the avoided paths of a kind of device for this process."""
    _avoided[device.type] = frozenset(paths)


def record_file() -> Path:
    """Return the path of the record: in the folder NMT_CACHE, by default ``nmt`` in the user's cache folder.

    Raises RuntimeError if the user has no home folder."""
    if folder := os.environ.get("NMT_CACHE"):
        return Path(folder) / "devices.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt" / "devices.json"


def hardware_name(device: torch.device) -> str:
    """Return the name of a device in the record."""
    return processor_name() if device.type == "cpu" else device_of(device).hardware


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions that an entry is valid for."""
    return {"torch": torch.__version__, "driver": device_of(device).driver}


def recorded_faults(device: torch.device) -> frozenset[FastPath]:
    """Return the recorded paths of a device. An entry for other versions is ignored, with a line in the log."""
    if not (records := read_records()):
        return frozenset()
    hardware = hardware_name(device)
    record = records.get(hardware)
    if record is None:
        return frozenset()
    now = versions(device)
    changed = [f"{name} {record.get(name)}, now {now[name]}" for name in now if record.get(name) != now[name]]
    if changed:
        made = "; ".join(changed)
        logger.info("ignored nmt-doctor's record for %s, made with %s; run nmt-doctor --full again", hardware, made)
        return frozenset()
    return frozenset(path for path in FastPath if path.name in record["faults"])


def in_words(paths: Iterable[FastPath]) -> str:
    return ", ".join(sorted(path.value for path in paths))


def read_records() -> dict[str, dict[str, Any]]:
    """Return the entries of all devices, by the name of the hardware. A damaged file has none."""
    try:
        path = record_file()
    except RuntimeError as error:
        logger.info("nmt-doctor has no record: %s", error)
        return {}
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        logger.info("ignored %s, which cannot be read (%s); nmt-doctor --full writes it again", path, error)
        return {}
    entries = records.items() if isinstance(records, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) and isinstance(entry.get("faults"), list)}

"""What nmt-doctor found wrong on a device: no rule chooses it there, only an option.

``nmt-doctor --full`` writes the file. An entry holds for the versions of driver and torch that were checked.
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
    """What a rule chooses because it is faster."""

    bf16 = "bf16"
    fp16 = "fp16"
    tf32 = "tf32"
    fused_attention = "fused attention"
    flat_attention = "attention without padding"
    fused_optimizer = "fused optimizer"
    queued_updates = "updates that are launched before the last one is known"


_avoided: dict[str, frozenset[FastPath]] = {}  # by kind of device


def avoids(device: torch.device, path: FastPath) -> bool:
    """Whether this process avoids a path."""
    return path in avoided(device)


def avoided(device: torch.device) -> frozenset[FastPath]:
    """Return what this process avoids: what was decided for a run, or else what is recorded for the device."""
    if device.type not in _avoided:
        avoid(device, recorded_faults(device))
    return _avoided[device.type]


def avoid(device: torch.device, paths: Iterable[FastPath]) -> None:
    """Set what this process avoids on a kind of device."""
    _avoided[device.type] = frozenset(paths)


def record_file() -> Path:
    """Return the path of the file: in the folder NMT_CACHE, by default ``nmt`` in the user's cache folder."""
    if folder := os.environ.get("NMT_CACHE"):
        return Path(folder) / "devices.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt" / "devices.json"


def hardware_name(device: torch.device) -> str:
    """Return the name of a device in the file."""
    return processor_name() if device.type == "cpu" else device_of(device).hardware


def versions(device: torch.device) -> dict[str, str]:
    """Return the versions for which a check holds."""
    return {"torch": torch.__version__, "driver": device_of(device).driver}


def recorded_faults(device: torch.device) -> frozenset[FastPath]:
    """Return the paths that failed on a device. An entry for other versions is ignored, with a line in the log."""
    if not (records := read_records()):
        return frozenset()
    hardware = hardware_name(device)
    record = records.get(hardware)
    if record is None:
        return frozenset()
    now = versions(device)
    changed = [f"{name} {record.get(name)} is {now[name]} now" for name in now if record.get(name) != now[name]]
    if changed:
        logger.info("what nmt-doctor found on %s is ignored: %s; run nmt-doctor --full", hardware, ", ".join(changed))
        return frozenset()
    faults = frozenset(path for path in FastPath if path.name in record.get("faults", ()))
    if faults:
        logger.info("not used on %s, since nmt-doctor found it wrong: %s", hardware, in_words(faults))
    return faults


def in_words(paths: Iterable[FastPath]) -> str:
    return ", ".join(sorted(path.value for path in paths))


def read_records() -> dict[str, dict[str, Any]]:
    """Return the entries of all devices, by the name of the hardware. A damaged file has none."""
    path = record_file()
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        logger.info("%s cannot be read (%s) and is ignored; nmt-doctor --full writes it again", path, error)
        return {}
    entries = records.items() if isinstance(records, dict) else ()
    return {name: entry for name, entry in entries if isinstance(entry, dict) and isinstance(entry.get("faults"), list)}

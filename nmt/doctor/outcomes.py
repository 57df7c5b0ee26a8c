"""Checks and their outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch

from nmt.devices import is_shortage, make_current
from nmt.devices.faults import FastPath, avoid
from nmt.devices.kinds import device_of
from nmt.errors import NMTError


class Skipped(Exception):
    """Raised if a check does not apply; the message is the reason."""


class Wrong(Exception):
    """Raised if a check fails; the message says what differs."""


@dataclass(frozen=True)
class Check:
    """A check of a device. ``run`` returns a line about what it found, or raises: ``Skipped`` if it does not apply, anything
    else if it failed."""

    name: str
    run: Callable[[torch.device], str]
    path: FastPath | None = None  # to be avoided if the check fails


class Outcome(Enum):
    """How a check ended."""

    passed = "pass"
    failed = "fail"
    skipped = "skipped"


@dataclass(frozen=True)
class Result:
    """What a check found on a device."""

    device: str
    check: str
    outcome: Outcome
    detail: str
    seconds: float
    path: FastPath | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as a tree for JSON."""
        tree = asdict(self) | {"outcome": self.outcome.value}
        del tree["path"]
        return tree


def results(checks: Iterable[Check], devices: Sequence[torch.device]) -> Iterator[Result]:
    """Run each check on each device. A check that fails, however it fails, does not stop the others.

    The record is ignored, so that every path is checked again."""
    for check in checks:
        for device in devices:
            began = time.perf_counter()
            make_current(device)
            avoid(device, ())  # a check before may have set this, and the next line
            device_of(device).allow_tf32(False)
            path = check.path
            try:
                detail, outcome = check.run(device), Outcome.passed
            except Skipped as reason:
                detail, outcome = str(reason), Outcome.skipped
            except Exception as error:
                detail, outcome = fault_of(error), Outcome.failed
                path = None if is_shortage(error) else path  # perhaps others use the memory
            device_of(device).release_memory()
            yield Result(str(device), check.name, outcome, detail, round(time.perf_counter() - began, 2), path)


def fault_of(error: Exception) -> str:
    """Describe in a line why a check failed."""
    if isinstance(error, (Wrong, NMTError)):
        return str(error)
    return f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0]

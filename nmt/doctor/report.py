"""Run the checks and tell what they found: a table for people, JSON for programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch

from nmt.config.choices import ScoreFormat
from nmt.devices.kinds import device_of
from nmt.doctor.checks import Check, Skipped, fault_of
from nmt.doctor.facts import Facts
from nmt.scoring.tables import table_lines


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

    def plain(self) -> dict[str, Any]:
        """Return it as a tree for JSON."""
        return asdict(self) | {"outcome": self.outcome.value}


def results(checks: Iterable[Check], devices: Sequence[torch.device]) -> Iterator[Result]:
    """Run each check on each device. A check that fails, however it fails, does not stop the others."""
    for check in checks:
        for device in devices:
            began = time.perf_counter()
            device_of(device).allow_tf32(False)  # a check before may have allowed it
            try:
                detail, outcome = check.run(device), Outcome.passed
            except Skipped as reason:
                detail, outcome = str(reason), Outcome.skipped
            except Exception as error:
                detail, outcome = fault_of(error), Outcome.failed
            device_of(device).release_memory()
            yield Result(str(device), check.name, outcome, detail, round(time.perf_counter() - began, 2))


def fact_lines(facts: Facts) -> Iterator[str]:
    """Yield the lines of all facts."""
    width = max(len(name) for of_subject in facts.values() for name in of_subject)
    for subject, of_subject in facts.items():
        yield subject
        yield from (f"  {name.ljust(width)}  {value}" for name, value in of_subject.items())


def result_lines(outcomes: Sequence[Result]) -> list[str]:
    """Return the lines of a table of results."""
    rows = [[result.outcome.value, result.device, result.check, result.detail] for result in outcomes]
    return table_lines(["", "device", "check", "what was found"], rows, ScoreFormat.text)

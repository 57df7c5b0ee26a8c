"""Print what the doctor found: facts as lines, results as a table. Record the paths that failed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch

from nmt.config.choices import ScoreFormat
from nmt.devices.faults import FastPath, hardware_name, in_words, read_records, record_file, versions
from nmt.doctor.facts import Facts
from nmt.doctor.outcomes import Outcome, Result
from nmt.errors import NMTError
from nmt.scoring.tables import table_lines
from nmt.storage.files import write_json

logger = logging.getLogger("nmt.doctor")


def fact_lines(facts: Facts) -> Iterator[str]:
    """Yield the lines of all facts."""
    width = max(len(name) for of_subject in facts.values() for name in of_subject)
    for subject, of_subject in facts.items():
        yield subject
        yield from (f"  {name.ljust(width)}  {value}" for name, value in of_subject.items())


def result_lines(outcomes: Sequence[Result]) -> list[str]:
    """Return the lines of a table of results."""
    rows = [[result.outcome.value, result.device, result.check, result.detail] for result in outcomes]
    return table_lines(["", "device", "check", "result"], rows, ScoreFormat.text)


def record(devices: Sequence[torch.device], outcomes: Sequence[Result]) -> list[str]:
    """Record the failed paths of each device, which automatic selection then avoids. Return lines that say so."""
    records = read_records()
    faults: dict[str, set[FastPath]] = {hardware_name(device): set() for device in devices}  # one entry for a name
    for device in devices:
        failed = (r for r in outcomes if r.device == str(device) and r.outcome is Outcome.failed)
        faults[hardware_name(device)] |= {result.path for result in failed if result.path is not None}
    for device in devices:
        name = hardware_name(device)
        records[name] = {**versions(device), "faults": sorted(fault.name for fault in faults[name])}
    lines = [f"not selected automatically on {name}: {in_words(failed)}" for name, failed in faults.items() if failed]
    try:
        path = record_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, records)
    except (OSError, RuntimeError, NMTError) as error:
        logger.warning("could not record the results: %s", error)
        return []
    return [*lines, f"record: {path}"]

"""The records of a sweep: one JSON object for each run in ``sweep.jsonl``, the names of run folders, and the table."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.storage.files import atomic_write
from nmt.storage.sweep_records import RECORDS, Record, read_records

LONGEST_NAME = 120


@contextlib.contextmanager
def records_of(folder: Path) -> Iterator[dict[str, Record]]:
    """Yield the records of a sweep by run folder, and store what the block changes. Other processes wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".sweep.lock", "a") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        records = {record["folder"]: record for record in read_records(folder)}
        yield records
        with atomic_write(folder / RECORDS) as file:
            for record in records.values():
                file.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def unfinished(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record["status"] != "finished"]


def run_name(overrides: Sequence[str]) -> str:
    """Return the folder name of a run, such as ``optimizer.lr-0.001__seed-2``. Different overrides have different names."""
    plain = "__".join(_without_special(override, "-") for override in overrides)
    # A key holds no "-", so a name can be read back unless a value holds the other separator.
    readable = all("__" not in override and not override.endswith("_") for override in overrides)
    same = readable and plain == "__".join(override.replace("=", "-", 1) for override in overrides)
    return _short(plain, overrides, same)


def old_run_name(overrides: Sequence[str]) -> str:
    """Return the folder name that earlier versions gave a run: ``optimizer.lr=0.001_seed=2``."""
    plain = "_".join(_without_special(override, "=") for override in overrides)
    return _short(plain, overrides, plain == "_".join(overrides))


def _without_special(override: str, assign: str) -> str:
    """Replace characters that a shell, a path or a list of paths reads as something else."""
    return assign.join(re.sub(r"[^\w.+-]+", "-", part) for part in override.split("=", 1))


def _short(plain: str, overrides: Sequence[str], same: bool) -> str:
    """Append a digest of the overrides if the name is too long or does not hold all of them."""
    if same and len(plain) <= LONGEST_NAME:
        return plain
    digest = hashlib.sha256("\0".join(overrides).encode()).hexdigest()[:8]
    return f"{plain[: LONGEST_NAME - 9]}-{digest}"


def table(records: Sequence[Record], folder: Path) -> str:
    """Return a table of the runs: overrides, best figure, status and folder."""
    metrics = {record["metric"] for record in records if "metric" in record}
    metric = next(iter(metrics)) if len(metrics) == 1 else None
    scored = [record for record in records if record.get("best") is not None]
    best = None
    if metric and len(scored) > 1:
        best = (max if scored[0]["higher_is_better"] else min)(scored, key=lambda record: float(record["best"]))
    rows = [["job", "overrides", metric or "best", "", "status", "folder"]]
    for record in records:
        figure = (
            "-" if record.get("best") is None else f"{'' if metric else record['metric'] + ' '}{record['best']:.4f}"
        )
        mark = "best" if record is best else ""
        chosen, place = " ".join(record["overrides"]) or "-", str(folder / record["folder"])
        rows.append([str(record["job"]), chosen, figure, mark, record["status"], place])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths) if width) for row in rows)
    return "\n".join(line.rstrip() for line in lines)

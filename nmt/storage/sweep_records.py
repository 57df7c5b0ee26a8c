"""Read the records of a sweep: one JSON object for each run in ``sweep.jsonl``."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

RECORDS = "sweep.jsonl"

Record = dict[str, Any]


def read_records(folder: Path) -> list[Record]:
    """Return one record for each run folder, over all starts of the sweep."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        lines = (folder / RECORDS).read_text(encoding="utf-8").split("\n")  # texts may hold other separators of lines
        return [json.loads(line) for line in lines if line]
    return []

"""Write the HTML report of a run: the page of its curves and translations, and its data, model, cost and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt.errors import MissingInputError
from nmt.pages.names import short_names
from nmt.pages.numbers import duration, scientific
from nmt.reporting.run_record import RunRecord, flops_by_time, stretches, time_in_words
from nmt.reporting.runs_page import ListedRun, page_data, runs_page
from nmt.storage.files import atomic_write, yaml_text

NAME = "report.html"


def write(folder: Path | str) -> Path:
    """Write ``report.html`` of a run folder. Returns its path."""
    path, text = Path(folder) / NAME, page_of(Path(folder))
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))
    return path


def page_of(folder: Path) -> str:
    record = RunRecord.read(folder)
    if not record.events:
        raise MissingInputError(f"{folder} has no log.jsonl with events: there is nothing to report")
    (name,) = short_names([folder])
    return page_of_record(record, page_data(name, [ListedRun(name, folder)], [record.events], single=True))


def page_of_record(record: RunRecord, data: Mapping[str, Any]) -> str:
    """Return the page of a run. ``data``: for its script."""
    start, model = record.last("start"), record.config.get("model")
    return runs_page(
        data,
        "report.html",
        record=record,
        start=start,
        kind=model.get("name") if isinstance(model, dict) else start.get("model", {}).get("name"),
        costs=[
            ("time", duration(record.seconds)),
            *time_in_words(record.last("end", "stopped", "train")),
            ("target tokens", f"{record.tokens:,}"),
            *((key, scientific(value)) for key, value in _operations(record)),
        ],
        options=yaml_text(dict(record.config)),
    )


def _operations(record: RunRecord) -> Iterator[tuple[str, float]]:
    """Yield the operations of the run, counted and estimated, if known."""
    if each := record.last("start").get("flops_per_token"):
        yield "operations counted, per target token", each
        yield "operations counted", each * record.tokens
        if record.seconds:
            yield "counted operations per second", each * record.tokens / record.seconds
    parts = stretches(record.events)
    if (estimated := flops_by_time(parts)) is not None:
        kinds = {f"{start.get('devices') or 1} x {start['device_tflops']:g} TFLOPS": None for start, _ in parts}
        yield f"operations estimated: time x {', then '.join(kinds)}", estimated

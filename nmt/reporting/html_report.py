"""Write the HTML report of a run: curves, translations, data, model, cost, configuration, without scripts or network."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from nmt.errors import MissingInputError
from nmt.pages.charts import Chart, Series, render, thinned
from nmt.pages.numbers import duration, figure, megabytes, scientific, short
from nmt.reporting.run_record import RunRecord, flops_by_time, stretches, time_in_words
from nmt.storage.files import atomic_write

NAME = "report.html"

_MOST_VALIDATIONS = 10  # whose translations are shown
_FLAG = re.compile(r"(--[a-z][a-z-]*)")


def write(folder: Path | str) -> Path:
    """Write ``report.html`` of a run folder. Returns its path."""
    record = RunRecord.read(Path(folder))
    if not record.events:
        raise MissingInputError(f"{folder} has no log.jsonl with events: there is nothing to report")
    path = record.folder / NAME
    with atomic_write(path) as file:
        file.write(page(record).encode("utf-8", "replace"))
    return path


def page(record: RunRecord) -> str:
    """Return the page."""
    start, model = record.last("start"), record.config.get("model")
    operations = list(_operations(record))
    return render(
        "report.html",
        record=record,
        start=start,
        name=record.folder.resolve().name,
        kind=model.get("name") if isinstance(model, dict) else start.get("model", {}).get("name"),
        why=_FLAG.split(record.close.get("message", "")),
        cards=[*_cards(record), *((key, short(value)) for key, value in operations if key == "operations counted")],
        charts=[chart for chart in _charts(record) if chart.drawn],
        skipped=record.of("skipped"),
        warnings=record.of("warning"),
        samples=_samples(record),
        costs=[
            ("time", duration(record.seconds)),
            *time_in_words(record.last("end", "stopped", "train")),
            ("target tokens", f"{record.tokens:,}"),
            *((key, scientific(value)) for key, value in operations),
        ],
        options=yaml.safe_dump(dict(record.config), sort_keys=False, allow_unicode=True),
        made=time.strftime("%Y-%m-%d %H:%M:%S"),
    )


def _cards(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Yield the figures at the top of the page; empty ones are not shown."""
    skipped, memory = len(record.of("skipped")), [value for _, value in record.training("memory_mb")]
    yield "update", f"{record.update:,}"
    yield "epoch", str(max((event.get("epoch") or 0 for event in record.events), default=0))
    yield "time", duration(record.seconds)
    yield "target tokens", short(record.tokens)
    yield "skipped updates", f"{skipped:,}" if skipped else ""
    if losses := record.curve("valid", "loss"):
        update, loss = min(losses, key=lambda point: point[1])
        yield f"lowest validation loss, update {update:,}", figure(loss)
    for name in record.scores:
        yield f"last validation {name}", figure(record.curve("valid", name)[-1][1])
    yield "tokens/s", short(record.speed) if record.speed else ""
    yield "peak memory", megabytes(memory[-1]) if memory else ""


def _charts(record: RunRecord) -> list[Chart]:
    times = Counter(int(event["update"]) for event in record.of("skipped"))
    marks = [
        (update, f"update {update:,} was skipped" + (f" {often:,} times" if often > 1 else ""))
        for update, often in sorted(times.items())
    ]
    last = max([record.update, *times])

    def train_and_valid(title: str, name: str) -> Chart:
        train, valid = Series("training", record.training(name)), record.curve("valid", name)
        return Chart(title, [train, Series("validation", valid, dots=True)], last, marks=marks)

    def training_only(title: str, name: str, unit: str = "") -> Chart:
        return Chart(title + unit, [Series(title.lower(), record.training(name))], last, from_zero=True, marks=marks)

    scores = [Series(name, record.curve("valid", name), dots=True) for name in record.scores]
    norms = [Series("mean", record.training("grad_norm")), Series("largest", record.training("largest_grad_norm"))]
    auxiliary = [name for name in record.names("train") if name.startswith("auxiliary_")]
    balance = [Series(name.removeprefix("auxiliary_"), record.curve("train", name)) for name in auxiliary]
    return [
        train_and_valid("Loss", "loss"),
        Chart("Scores of validation", scores, last, linear=True),
        train_and_valid("Perplexity", "ppl"),
        training_only("Learning rate", "lr"),
        Chart("Gradient norm", norms, last, from_zero=True, marks=marks),
        training_only("Target tokens per second", "tokens_per_second"),
        training_only("Peak memory", "memory_mb", " (MB)"),
        Chart("CPU share", [Series("share", record.curve("train", "processor_share"))], last, from_zero=True),
        Chart("Auxiliary losses", balance, last),
    ]


def _samples(record: RunRecord) -> list[dict[str, Any]]:
    """Return the samples of the last validation, each with its translations by update."""
    events = {event["update"]: event["samples"] for event in record.of("samples")}
    shown = [int(update) for update, _ in thinned([(update, 0.0) for update in sorted(events)], _MOST_VALIDATIONS)]
    return [
        {**sample, "hypotheses": [(u, events[u][number]["hypothesis"]) for u in shown if number < len(events[u])]}
        for number, sample in enumerate(events[shown[-1]] if shown else [])
    ]


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

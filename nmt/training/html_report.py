"""A run as one HTML page: curves, translations, data, model, cost, configuration. It needs no script and no network."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import yaml

from nmt.errors import MissingInputError
from nmt.storage.event_log import stretches
from nmt.storage.files import atomic_write
from nmt.training.charts import Chart, Series, short, thinned
from nmt.training.displays import duration, figure, megabytes
from nmt.training.html_style import STYLE
from nmt.training.run_record import RunRecord, changed_options
from nmt.training.setup.cost import flops_by_time

NAME = "report.html"

_MOST_VALIDATIONS = 10  # whose translations are shown
_MOST_SKIPPED = 20  # updates in the table
_FLAG = re.compile(r"--[a-z][a-z-]*")
_LOSSES = ("loss", "nll", "ppl")  # of a validation; its other figures are scores


def write(folder: Path | str) -> Path:
    """Make ``report.html`` of what is in a run folder; the path."""
    folder = Path(folder)
    record = RunRecord.read(folder)
    if not record.events:
        raise MissingInputError(f"{folder} has no log.jsonl with events: there is nothing to report")
    with atomic_write(folder / NAME) as file:
        file.write(page(record).encode("utf-8", "replace"))
    return folder / NAME


def page(record: RunRecord) -> str:
    """The whole document."""
    name = escape(record.folder.resolve().name)
    body = [
        _header(record),
        _section("Curves", _charts(record)),
        _section("Skipped updates", _skipped(record)),
        _section("Translations", _translations(record)),
        _section("Data", _data(record.last("start").get("data", {}))),
        _section("Model", _model(record.last("start").get("model", {}))),
        _section("Cost", _cost(record)),
        _section("Configuration", _configuration(record)),
        _section("Environment", _table((key, value) for key, value in _environment(record))),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        f'<link rel="icon" href="data:,"><title>{name}</title><style>{STYLE}</style></head>\n<body><main>'
        + "\n".join(body)
        + f"<footer>Made by nmt, {time.strftime('%Y-%m-%d %H:%M:%S')}.</footer></main></body></html>\n"
    )


def _header(record: RunRecord) -> str:
    model = record.config.get("model")
    start = record.last("start")
    data = start.get("data", {})
    languages = f"{data['source']} to {data['target']}" if data else ""
    kind = model.get("name") if isinstance(model, dict) else start.get("model", {}).get("name")
    what = escape(", ".join(str(part) for part in (kind, languages) if part))
    last = record.last("train")
    cards = [
        ("update", f"{record.update:,}"),
        ("epoch", str(max((event.get("epoch") or 0 for event in record.events), default=0))),
        ("time", duration(record.seconds)),
        ("target tokens", short(record.tokens)),
        ("skipped updates", f"{skipped:,}" if (skipped := len(record.of("skipped"))) else ""),
        *_best_figures(record),
        ("tokens/s", short(last["tokens_per_second"]) if last.get("tokens_per_second") else ""),
        ("peak memory", megabytes(last["memory_mb"]) if last.get("memory_mb") else ""),
        *((key, short(value)) for key, value in _operations(record) if key == "operations counted"),
    ]
    shown = "".join(f"<div><b>{escape(value)}</b><span>{escape(key)}</span></div>" for key, value in cards if value)
    name = escape(record.folder.resolve().name)
    return f'<header><h1>{name}</h1><p>{what} {_status(record)}<div class="cards">{shown}</div></header>'


def _status(record: RunRecord) -> str:
    """How the run ended, and why; closes the paragraph."""
    close = record.close
    if not close:
        return "<span>not finished</span></p>"
    if close["event"] == "end":
        return f'<span class="done">finished: {escape(close["ending"])}</span></p>'
    kind = "" if close["cause"] == "signal" else ' class="failed"'
    why = _FLAG.sub("<code>\\g<0></code>", escape(close["message"]))  # no line ends within a flag
    return f'<span{kind}>stopped: {escape(close["cause"])}</span></p><p class="why">{why}</p>'


def _best_figures(record: RunRecord) -> Iterable[tuple[str, str]]:
    """The lowest loss of validation, and the last value of each score."""
    losses = record.curve("valid", "loss")
    if losses:
        update, loss = min(losses, key=lambda point: point[1])
        yield f"lowest validation loss, update {update:,}", figure(loss)
    for name in _scores(record):
        yield f"last validation {name}", figure(record.curve("valid", name)[-1][1])


def _scores(record: RunRecord) -> list[str]:
    return [name for name in record.names("valid") if name not in _LOSSES]


def _charts(record: RunRecord) -> str:
    times = Counter(int(event["update"]) for event in record.of("skipped"))
    marks = [
        (update, f"update {update:,} was skipped" + (f" {often:,} times" if often > 1 else ""))
        for update, often in sorted(times.items())
    ]
    last = max([record.update, *times])

    def both(title: str, name: str) -> Chart:
        train, valid = Series("training", record.training(name)), record.curve("valid", name)
        return Chart(title, [train, Series("validation", valid, dots=True)], last, marks=marks)

    def alone(title: str, name: str, unit: str = "") -> Chart:
        series = Series(title.lower(), record.training(name))
        return Chart(f"{title}{unit}", [series], last, from_zero=True, marks=marks)

    scores = [Series(name, record.curve("valid", name), dots=True) for name in _scores(record)]
    auxiliary = [name for name in record.names("train") if name.startswith("auxiliary_")]
    balance = [Series(name.removeprefix("auxiliary_"), record.curve("train", name)) for name in auxiliary]
    charts = [
        both("Loss", "loss"),
        Chart("Scores of validation", scores, last),
        both("Perplexity", "ppl"),
        alone("Learning rate", "lr"),
        alone("Gradient norm", "grad_norm"),
        alone("Target tokens per second", "tokens_per_second"),
        alone("Peak memory", "memory_mb", " (MB)"),
        Chart("Auxiliary losses", balance, last),
    ]
    figures = "".join(chart.html() for chart in charts)
    note = "All over updates. Broken lines mark skipped updates." if marks else "All over updates."
    return f'<div class="charts">{figures}</div><p class="note">{note}</p>' if figures else ""


def _skipped(record: RunRecord) -> str:
    """Updates that were not made, the newest first."""
    events = record.of("skipped")[::-1]
    if not events:
        return ""
    shown = events[:_MOST_SKIPPED]
    rows = [
        [
            f"{event['update']:,}",
            _shown(event.get("epoch")),
            *(_rounded(event.get(key)) for key in ("loss", "grad_norm")),
        ]
        for event in shown
    ]
    left_out = "" if len(shown) == len(events) else f" The last {len(shown)} of {len(events):,} are shown."
    return (
        "<p>These updates were not made, because the loss or the gradient was not finite. The folder bad-updates has the "
        f"sentences of the first ones.{left_out}</p>" + _grid(("update", "epoch", "loss", "gradient norm"), rows)
    )


def _translations(record: RunRecord) -> str:
    """What each sample was translated to, validation by validation."""
    events = {event["update"]: event["samples"] for event in record.of("samples")}
    if not events:
        return ""
    numbered = [(float(update), 0.0) for update in sorted(events)]
    shown = [int(update) for update, _ in thinned(numbered, _MOST_VALIDATIONS)]
    parts = []
    for number, sample in enumerate(events[shown[-1]]):
        rows = [
            (f"update {update:,}", events[update][number]["hypothesis"])
            for update in shown
            if number < len(events[update])
        ]
        head = [("source", sample["source"]), ("reference", sample["reference"])]
        lines = "".join(
            f'<tr{mark}><th>{escape(key)}</th><td dir="auto">{escape(text)}</td></tr>'
            for mark, pairs in ((' class="given"', head), ("", rows))
            for key, text in pairs
        )
        parts.append(f'<table class="texts">{lines}</table>')
    return "".join(parts)


def _data(data: Mapping[str, Any]) -> str:
    if not data:
        return ""
    heads = ("split", "side", "sentences", "pieces", "mean length", "median", "95 %", "longest")
    rows = [
        (
            split,
            data.get(side, side),
            *(f"{value:,}" for value in (sizes["sentences"], sizes[side]["pieces"])),
            *(f"{sizes[side][key]:g}" for key in ("mean", "median", "percentile_95", "longest")),
        )
        for split, sizes in data["splits"].items()
        for side in ("source", "target")
        if side in sizes
    ]
    sizes = data["vocabularies"]
    entries = f"one of {sizes[0]:,} entries" if data["shared"] else f"{sizes[0]:,} and {sizes[1]:,} entries"
    found = [line for corpus in data["preprocessing"] for line in _found(corpus)]
    return (
        f"<p>Vocabulary: {entries}. Lengths are in pieces.</p>"
        + _grid(heads, rows)
        + ("<h3>What preprocessing found</h3>" + _grid(_FOUND, found) if found else "")
    )


_FOUND = ("corpus", "split", "read", "kept", "dropped", "repeated", "unknown source", "unknown target")


def _found(corpus: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    for split in corpus["splits"]:
        dropped = [f"{facts['count']:,} {reason}" for reason, facts in split["dropped"].items()]
        unknown = [
            f"{100 * side['unknown'] / max(1, side['pieces']):.2f} %" if side else ""
            for side in (split["source"], split["target"])
        ]
        counts = [f"{split[key]:,}" for key in ("read", "kept")]
        repeated = f"{split['duplicates']:,}"
        yield corpus["folder"], split["split"], *counts, "; ".join(dropped) or "0", repeated, *unknown


def _model(model: Mapping[str, Any]) -> str:
    if not model:
        return ""
    total = model["parameters"]
    rows = [(part, f"{count:,}", f"{100 * count / max(1, total):.1f} %") for part, count in model["parts"].items()]
    return _grid(("part", "parameters", "share"), [*rows, ("all", f"{total:,}", "100.0 %")])


def _cost(record: RunRecord) -> str:
    rows = [("time", duration(record.seconds)), ("target tokens", f"{record.tokens:,}")]
    return _table([*rows, *((key, _scientific(value)) for key, value in _operations(record))])


def _operations(record: RunRecord) -> Iterable[tuple[str, float]]:
    """Counted from the model and estimated from time, as far as they are known."""
    if each := record.last("start").get("flops_per_token"):
        yield "operations counted, per target token", each
        yield "operations counted", each * record.tokens
        if record.seconds:
            yield "counted operations per second", each * record.tokens / record.seconds
    parts = stretches(record.events)
    if (estimated := flops_by_time(parts)) is not None:
        kinds = {f"{start.get('devices') or 1} x {start['device_tflops']:g} TFLOPS": None for start, _ in parts}
        yield f"operations estimated: time x {', then '.join(kinds)}", estimated


def _scientific(value: float) -> str:
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}\u00a0\u00d7\u00a010^{int(exponent)}"


def _configuration(record: RunRecord) -> str:
    if not record.config:
        return ""
    whole = escape(yaml.safe_dump(dict(record.config), sort_keys=False, allow_unicode=True))
    return (
        "<p>Options that differ from their defaults:</p>"
        + _table((key, _shown(value)) for key, value in changed_options(record.config))
        + f"<details><summary>All options</summary><pre>{whole}</pre></details>"
    )


def _environment(record: RunRecord) -> Iterable[tuple[str, str]]:
    for key, value in record.last("start").get("environment", {}).items():
        yield key, str(value)
    if starts := len(record.of("start")):
        yield "starts and continuations", str(starts)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rounded(value: Any) -> str:
    """A figure that the log keeps as text, since it may be infinite."""
    try:
        return figure(float(value))
    except (TypeError, ValueError):
        return _shown(value)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _table(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    lines = "".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    return f'<table class="pairs">{lines}</table>' if lines else ""


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a head; wider than a phone, it scrolls by itself."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table class="grid"><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'

"""Callbacks receive the events of a run on rank 0. They may add metrics to its record and stop it, nothing else.

TensorBoard, Weights & Biases, MLflow and ``report.html`` are callbacks too (``nmt/reporting/sinks.py``). The difference is
what an exception does: it ends the run, but only switches off a sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from nmt.config.listed import with_options
from nmt.errors import UsageError, shown
from nmt.registry import Registry
from nmt.reporting.figures import Meters

OPTION = "report.callbacks (--callbacks)"


@dataclass(frozen=True)
class RunEvent:
    """One event of a run: what a line of ``log.jsonl`` records, or the figures of a single update."""

    name: str  # as in log.jsonl: start, train, valid, checkpoint, end or stopped
    folder: Path  # the run folder
    update: int  # the last one that was applied
    epoch: int
    fields: Mapping[str, Any]  # all fields of the event
    path: Path | None = None  # of a checkpoint

    @property
    def figures(self) -> dict[str, float]:
        """The fields that are numbers with a curve, such as the loss."""
        return {name: value for name, value in self.fields.items() if isinstance(value, float)}

    @property
    def ending(self) -> str | None:
        """Why the run ended; None in other events."""
        reason = self.fields.get("ending", self.fields.get("message"))
        return None if reason is None else str(reason)


@dataclass(frozen=True)
class Stop:
    """Request the end of the run, and add the last metrics: a method of a callback returns it."""

    reason: str
    metrics: Mapping[str, float] = field(default_factory=dict)


Returned = Mapping[str, float] | Stop | None  # metrics to record under their names, a request to stop, or nothing


class Callback:
    """Receive the events of a run. Override the methods that you need; each may return metrics, ``Stop`` or None."""

    # False: `on_update` is called once per --log-interval, with the means that log.jsonl records.
    every_update: ClassVar[bool] = True

    def on_start(self, event: RunEvent) -> Returned:
        """Receive the start of the run, or its start again after ``event.update`` updates."""

    def on_update(self, event: RunEvent) -> Returned:
        """Receive an update that was applied, with its own loss, gradient norm and learning rate."""

    def on_validation(self, event: RunEvent) -> Returned:
        """Receive the scores of a validation."""

    def on_checkpoint(self, event: RunEvent) -> Returned:
        """Receive ``event.path``, a checkpoint that is complete on the disk."""

    def on_end(self, event: RunEvent) -> Returned:
        """Receive the end of the run and its reason, ``event.ending``, also after an error or a signal."""


class FigureSink(Callback):
    """Write the figures of all recorded events. The base class of TensorBoard, Weights & Biases and MLflow."""

    every_update = False

    def write(self, curves: Mapping[str, float], update: int) -> None:
        """Write figures under the names of their curves, such as ``valid/loss``."""
        raise NotImplementedError

    def close(self, event: RunEvent) -> None:
        """Complete the record of the run."""

    def on_start(self, event: RunEvent) -> None:
        if curves := {f"{event.name}/{name}": value for name, value in event.figures.items()}:
            self.write(curves, event.update)

    on_update = on_validation = on_checkpoint = on_start

    def on_end(self, event: RunEvent) -> None:
        self.on_start(event)
        self.close(event)


# builder(config) -> Callback
callbacks: Registry[Callback] = Registry("callback")


def checked(listed: Sequence[Callback | str]) -> list[Any]:
    """Return each callback, and the options of each ``NAME`` or ``NAME:OPTION=VALUE:...``. Refuse anything else."""
    return [_named(item) if isinstance(item, str) else _callback(item) for item in listed]


def build(accepted: Sequence[Any]) -> list[Callback]:
    """Build what ``checked`` returned."""
    return [part if isinstance(part, Callback) else _callback(callbacks.build(part)) for part in accepted]


def _named(item: str) -> Any:
    name, *options = (part.strip() for part in item.split(":"))
    return with_options(callbacks.config_class(name), name, options, item, OPTION)


def _callback(part: object) -> Callback:
    if not isinstance(part, Callback):
        advice = "give an instance of it" if isinstance(part, type) else "derive its class from nmt.Callback"
        raise UsageError(f"callbacks: {shown(part)} is not a callback; {advice}")
    return part


class CallbackError(Exception):
    """A callback failed, or returned something that it may not return. Printed with its traceback."""


METHODS = {  # by the name of the event in log.jsonl; callbacks do not receive other events
    "start": "on_start",
    "train": "on_update",
    "valid": "on_validation",
    "checkpoint": "on_checkpoint",
    "end": "on_end",
    "stopped": "on_end",
}
# Fields of log.jsonl that are not in each event that a metric can be added to.
_RESERVED = frozenset(
    ("event", "times", "processor_share", "skipped", "cause", "message", "ending", "path", *Meters().means(0, 0, 0, 0))
)


class Callbacks:
    """The callbacks of a run; none on ranks but 0. Notes the first request to stop, and the first exception."""

    def __init__(self, parts: Sequence[Callback] = ()) -> None:
        self._parts = list(parts)
        self.stop: str | None = None
        self.failure: CallbackError | None = None
        self.want_every_update = any(part.every_update for part in parts)
        self._owners: dict[str, Callback] = {}  # of metrics, by name
        self._ended = False

    def receive(self, event: RunEvent, every_update: bool | None = None) -> dict[str, float]:
        """Pass an event to all callbacks in order, and return their metrics. Each sees the metrics of those before it.

        ``every_update``: pass it only to callbacks with this value; None: to all.
        """
        method, metrics = METHODS[event.name], dict[str, float]()
        if method == "on_end":
            if self._ended:
                return {}
            self._ended = True
        for part in self._parts:
            if every_update not in (None, part.every_update) or (self.failure is not None and method != "on_end"):
                continue
            seen = replace(event, fields={**event.fields, **metrics}) if metrics else event
            try:
                metrics |= self._result(part, getattr(part, method)(seen), seen)
            except (Exception, SystemExit) as error:
                self._fail(f"callback {type(part).__name__} failed in {method} at update {event.update}", error)
        return metrics

    def _result(self, part: Callback, returned: object, event: RunEvent) -> dict[str, float]:
        """Return the metrics in what a method returned; note a request to stop."""
        if isinstance(returned, Stop):
            self.stop = self.stop or f"stopped by {type(part).__name__}: {returned.reason}"
            returned = returned.metrics
        metrics = {} if returned is None else dict(_metrics(returned))
        for name in metrics:
            if name in _RESERVED or (name in event.fields and self._owners.get(name) is not part):
                raise ValueError(f"it returned the metric {name!r}, which is recorded already; choose another name")
            self._owners[name] = part
        return metrics

    def _fail(self, what: str, error: BaseException) -> None:
        if self.failure is None:
            self.failure = CallbackError(f"{what}: {type(error).__name__}: {error}")
            self.failure.__cause__ = error


def _metrics(returned: object) -> Iterator[tuple[str, float]]:
    if not isinstance(returned, Mapping):
        raise TypeError(f"it returned {shown(returned)}; return None, a dict of metrics, or nmt.Stop(reason)")
    for name, value in returned.items():
        if not isinstance(name, str) or not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"it returned the metric {shown(name)}: {shown(value)}; a name and a float are needed")
        yield name, float(value)

"""Callbacks receive the events of a run on rank 0. They may add metrics to its record and stop it, nothing else.

TensorBoard, Weights & Biases, MLflow and ``report.html`` receive the same events by the same methods
(``nmt/reporting/sinks.py``). An exception of a callback ends the run; an exception of these only switches them off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

from nmt.config.listed import with_options
from nmt.errors import UsageError, shown
from nmt.registry import Registry
from nmt.reporting.figures import Meters
from nmt.short_repr import ShortRepr
from nmt.storage.files import write_json
from nmt.storage.reading import read_json

OPTION = "report.callbacks (--callbacks)"


@dataclass(frozen=True)
class RunEvent(ShortRepr):
    """One event of a run: a line of ``log.jsonl``, or a single update."""

    name: str  # a key of ``METHODS``: "update", or as in log.jsonl
    folder: Path  # the run folder
    update: int  # the last one that was applied; of a skipped update: its own number
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
        return self.fields.get("message" if self.name == "stopped" else "ending")


@dataclass(frozen=True)
class Stop:
    """Request the end of the run, and add the last metrics: a method of a callback returns it."""

    reason: str
    metrics: Mapping[str, float] = field(default_factory=dict)


Returned = Mapping[str, float] | Stop | None  # metrics to record under their names, a request to stop, or nothing


class Callback:
    """Receive the events of a run. Override the methods that you need; each may return metrics, ``Stop`` or None."""

    def on_start(self, event: RunEvent) -> Returned:
        """Receive the start of the run, or its resume after ``event.update`` updates."""

    def on_update(self, event: RunEvent) -> Returned:
        """Receive an update that was applied, with its own loss, gradient norm and learning rate."""

    def on_log(self, event: RunEvent) -> Returned:
        """Receive the means of the updates since the last call, every ``--log-interval`` updates."""

    def on_skip(self, event: RunEvent) -> Returned:
        """Receive an update that was skipped, because its loss or gradient was not finite."""

    def on_warning(self, event: RunEvent) -> Returned:
        """Receive ``event.fields["message"]``: the model does not learn, or its loss had a spike."""

    def on_samples(self, event: RunEvent) -> Returned:
        """Receive ``event.fields["samples"]``, translations of a validation: dicts of source, reference, hypothesis."""

    def on_validation(self, event: RunEvent) -> Returned:
        """Receive the scores of a validation."""

    def on_checkpoint(self, event: RunEvent) -> Returned:
        """Receive ``event.path``, a checkpoint that is complete on the disk."""

    def on_end(self, event: RunEvent) -> Returned:
        """Receive the end of the run and its reason, ``event.ending``, also after an error or a signal."""


class FigureSink(Callback):
    """Write the figures and texts of ``log.jsonl``. The base class of TensorBoard, Weights & Biases and MLflow."""

    def write(self, curves: Mapping[str, float | str], update: int) -> None:
        """Write figures under the names of their curves, such as ``valid/loss``; ``warning`` and ``samples`` are texts."""
        raise NotImplementedError

    def close(self, event: RunEvent) -> None:
        """Complete the record of the run."""

    def on_start(self, event: RunEvent) -> None:
        if curves := dict[str, float | str]((f"{event.name}/{name}", value) for name, value in event.figures.items()):
            self.write(curves, event.update)

    on_log = on_validation = on_checkpoint = on_start

    def on_skip(self, event: RunEvent) -> None:
        self.write({"skipped/number": float(event.fields["number"])}, event.update)

    def on_warning(self, event: RunEvent) -> None:
        self.write({"warning": event.fields["message"]}, event.update)

    def on_samples(self, event: RunEvent) -> None:
        samples = ("\n".join(f"- {name}: {text}" for name, text in each.items()) for each in event.fields["samples"])
        self.write({"samples": "\n\n".join(samples)}, event.update)

    def on_end(self, event: RunEvent) -> None:
        self.on_start(event)
        self.close(event)


def stored_id(path: Path, place: Mapping[str, str], new: Callable[[], str]) -> str:
    """Return the id of a run at a tracker: that in the file ``path``, or else that of a ``new`` run, which is then stored.

    ``place``: its project or experiment. If the file has another one, the run is a new one there.
    """
    stored = read_json(path) if path.is_file() else None
    if isinstance(stored, dict) and isinstance(stored.get("id"), str) and stored == {**place, "id": stored["id"]}:
        return str(stored["id"])
    made = new()
    write_json(path, {**place, "id": made})
    return made


# builder(config) -> Callback
callbacks: Registry[Callback] = Registry("callback")


def checked(listed: Sequence[Callback | str]) -> list[Any]:
    """Return each callback, or the options of each ``NAME`` or ``NAME:OPTION=VALUE:...``. Refuse anything else."""
    accepted = list[Any]()
    for item in listed:
        if isinstance(item, str):
            name, *options = (part.strip() for part in item.split(":"))
            accepted.append(with_options(callbacks.config_class(name), name, options, item, OPTION))
        elif isinstance(item, Callback):
            accepted.append(item)
        else:
            advice = "give an instance of it" if isinstance(item, type) else "derive its class from nmt.Callback"
            raise UsageError(f"callbacks: {shown(item)} is not a callback; {advice}")
    return accepted


class CallbackError(Exception):
    """A callback failed, or returned something that it may not return. Printed with its traceback."""


METHODS = {  # by the name of the event
    "start": "on_start",
    "update": "on_update",  # not in log.jsonl
    "train": "on_log",
    "skipped": "on_skip",
    "warning": "on_warning",
    "samples": "on_samples",
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

    def __init__(self, parts: Sequence[Any] = ()) -> None:
        """``parts``: as ``checked`` returns them."""
        self._parts = [part if isinstance(part, Callback) else callbacks.build(part) for part in parts]
        self.stop: str | None = None
        self.failure: CallbackError | None = None
        self._owners: dict[str, Callback] = {}  # of metrics, by name
        self._ended = False

    def receive(self, event: RunEvent) -> dict[str, float]:
        """Pass an event to all callbacks in order, and return their metrics. Each sees the metrics of those before it."""
        method, metrics = METHODS[event.name], dict[str, float]()
        ends = method == "on_end"
        parts = [] if ends and self._ended else self._parts
        self._ended |= ends
        for part in parts:
            if self.failure is not None and not ends:
                break
            event = replace(event, fields={**event.fields, **metrics})
            try:
                metrics |= self._metrics(part, getattr(part, method)(event), event.fields)
            except (Exception, SystemExit) as error:
                what = f"callback {type(part).__name__} failed in {method} at update {event.update}"
                failure = CallbackError(f"{what}: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self.failure = self.failure or failure
        return metrics

    def _metrics(self, part: Callback, returned: object, fields: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics in what a method returned; note a request to stop. ``fields``: of the event."""
        if isinstance(returned, Stop):
            self.stop = self.stop or f"stopped by {type(part).__name__}: {returned.reason}"
            returned = returned.metrics
        if not isinstance(returned, Mapping):
            if returned is None:
                return {}
            raise TypeError(f"it returned {shown(returned)}; return None, a dict of metrics, or nmt.Stop(reason)")
        for name, value in returned.items():
            if not isinstance(name, str) or not isinstance(value, Real) or isinstance(value, bool):
                raise TypeError(f"it returned the metric {shown(name)}: {shown(value)}; a name and a float are needed")
            if name in _RESERVED or (name in fields and self._owners.get(name) is not part):
                raise ValueError(f"it returned the metric {name!r}, which is recorded already; choose another name")
            self._owners[name] = part
        return {name: float(value) for name, value in returned.items()}

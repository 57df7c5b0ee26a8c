"""Show and record a run: on a display, in the log of events, and in the sinks."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from nmt.config.choices import ProgressStyle
from nmt.config.reporting import ReportConfig
from nmt.devices import is_shortage
from nmt.errors import NMTError, quantity
from nmt.pages.numbers import duration, figure, megabytes
from nmt.progress import SECONDS_BETWEEN_LINES, Clock, going_on, open_bar, resolved
from nmt.reporting.callbacks import CallbackError, Callbacks, RunEvent
from nmt.reporting.figures import Meters, UpdateReport
from nmt.reporting.resources import peak_memory
from nmt.reporting.run_record import Cost, Event, EventLog, stretches, time_in_words
from nmt.reporting.sinks import Sinks, open_sinks
from nmt.reporting.stopwatch import ProcessorShare
from nmt.storage.run_status import described

logger = logging.getLogger("nmt.training")

# The cause in the log of a run, by the reason in its status.
_CAUSES = {"diverged": "diverged", "interrupted": "signal", "preempted": "signal", "disk": "storage"}
CROWDED = 0.8  # share of a processor below which the end of a run says that other processes slowed it
_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_BAR_WITHOUT_END = "{desc} | update {n_fmt} [{elapsed}]"


@dataclass
class Reporter:
    """Collect updates and record their means at every ``log_interval``. No failure in here ends training.

    Figures are also shown in between: at the first update, every half minute, at the end of an epoch, and on a bar at its
    beginning. They are means over the current epoch since the last record, and are not recorded.
    """

    folder: Path
    options: ReportConfig
    _: KW_ONLY
    total_updates: int | None
    memory: Callable[[], int] = lambda: peak_memory(torch.device("cpu"))  # the most that was held so far, in bytes
    clock: Clock = time.monotonic
    callbacks: Callbacks = field(default_factory=Callbacks)

    def __post_init__(self) -> None:
        self._meters = Meters()  # since the last record
        self._of_epoch = Meters()  # since the last record, in the current epoch
        self._epoch = 0
        self._log = EventLog(self.folder / "log.jsonl")
        self._sinks = Sinks({})
        self._display = Display()
        self._shown = -math.inf  # when the last figures were, by the clock
        self._cost = Cost()
        self._samples: Sequence[Sample] = ()
        self._processor, self._processor_of_run = ProcessorShare(), ProcessorShare()  # since the last record, in all

    def start(
        self,
        update: int,
        facts: Mapping[str, Any] | None = None,
        cost: Cost | None = None,
        seconds: float = 0.0,
        skipped: int = 0,
        epoch: int = 1,
    ) -> None:
        """Begin, or resume after ``update``, ``seconds`` and ``skipped`` updates; later events are dropped from the log.

        ``facts``: description of the run, which is recorded.
        """
        self._cost = cost or Cost()
        self._log.rewind(update, skipped)
        self._sinks = open_sinks(self.folder, self.options, update)
        self._epoch = epoch
        if facts is not None:
            facts = {"seconds": round(seconds, 1), "total_updates": self.total_updates, **facts, **asdict(self._cost)}
            self._record("start", update, **facts)
        style = resolved(self.options.progress)
        if style is ProgressStyle.bar:
            self._display = BarDisplay(update, self.total_updates)
        elif style is ProgressStyle.lines:
            self._display = LineDisplay(update, self.total_updates, self.clock)

    def update(
        self,
        update: int,
        epoch: int,
        report: UpdateReport,
        seconds: float,
        *,
        times: Mapping[str, float] | None = None,
        ends_epoch: bool = False,
    ) -> None:
        """Record one update. ``seconds``: duration of the run so far; ``times``: the same by activity."""
        if epoch != self._epoch:
            self._epoch, self._of_epoch = epoch, Meters()
        self._meters, self._of_epoch = self._meters.plus(report), self._of_epoch.plus(report)
        if metrics := self._record("update", update, epoch=epoch, **report.figures()):
            self._meters = replace(self._meters, metrics={**self._meters.metrics, **metrics})
        begins_epoch = self._display.advance(update, epoch)
        recorded = update % self.options.log_interval == 0
        due = self.clock() - self._shown >= SECONDS_BETWEEN_LINES
        if not (recorded or ends_epoch or begins_epoch or due):
            return
        meters = self._meters if recorded else self._of_epoch
        event = meters.means(update, epoch, round(self.memory() / 1e6, 1), round(seconds, 1))
        self._display.show(event, ends_epoch=ends_epoch)
        self._shown = self.clock()
        if recorded:
            self._record("train", update, **event | _spent(times or {}, self._processor.take()))
            self._meters, self._of_epoch = Meters(), Meters()

    def skipped(self, update: int, epoch: int, figures: UpdateReport, *, number: int) -> None:
        """Record the ``number``-th update that was skipped because its loss or gradient was not finite.

        The figures are stored as text, because JSON has no NaN.
        """
        loss, norm = str(figures.loss), str(figures.grad_norm)
        self._record("skipped", update, epoch=epoch, number=number, loss=loss, grad_norm=norm)

    def warned(self, update: int, epoch: int, message: str) -> None:
        """Log and record a warning about the run."""
        logger.warning("%s", message)
        self._record("warning", update, epoch=epoch, message=message)

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        if self._samples:
            samples, self._samples = [asdict(sample) for sample in self._samples], ()
            self._record("samples", update, epoch=epoch, samples=samples)
        fields: dict[str, Any] = {"epoch": epoch, **scores}
        scores = {**scores, **self._record("valid", update, **fields)}
        by_direction: dict[str, list[str]] = {"": []}  # the figures of all directions first
        for name, value in scores.items():
            direction, _, metric = name.rpartition(".")
            by_direction.setdefault(direction, []).append(f"{metric} {figure(value)}")
        for direction, figures in by_direction.items():
            what = " ".join(filter(None, ("validation", direction)))
            mark = " | best so far" if best and not direction else ""
            logger.info("epoch %d | update %d | %s | %s%s", epoch, update, what, " | ".join(figures), mark)

    def samples(self, samples: Sequence[Sample]) -> None:
        """Show sample translations of a validation, before its scores."""
        log_samples(samples)
        self._samples = samples

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        self._record("checkpoint", update, path, epoch=epoch, path=path.name)
        logger.info("wrote %s", path)

    def end(self, update: int, epoch: int, *, ending: str, **spent: Any) -> None:
        """Report the end of the run. ``ending``: reason; ``spent``: tokens, seconds, times and skipped updates."""
        event: dict[str, Any] = self._closing(update, epoch, **spent)
        if self._meters.updates:
            self._display.show(event)
        parts = stretches([*self._log.events(), {"event": "end", "seconds": event["seconds"]}])
        flops = self._cost.figures(event["tokens"], parts)
        event |= {"ending": ending, **_spent(spent.get("times", {}), self._processor_of_run.take()), **flops}
        self._record("end", update, **event)
        left_out = f" | {quantity(event['skipped'], 'update')} skipped" if event["skipped"] else ""
        cost = "".join(f" | {value:.3g} operations {name.removeprefix('flops_')}" for name, value in flops.items())
        logger.info(f"trained on {event['tokens']:,} target tokens in {duration(spent['seconds'])}{left_out}{cost}")
        if shares := time_in_words(event):
            logger.info("%s", " | ".join(f"{name} {value}" for name, value in shares))
        if event.get("processor_share", 1.0) < CROWDED:
            logger.warning("other processes slowed the run: its threads often waited for a processor")

    def stopped(self, error: BaseException, *, update: int, epoch: int, **spent: Any) -> None:
        """Report that the run stops before its end, because of ``error``."""
        event = self._closing(update, epoch, **spent) | {"cause": cause_of(error), "message": message_of(error)}
        self._record("stopped", update, **event, **_spent(spent.get("times", {}), self._processor_of_run.take()))
        if (failure := self.callbacks.failure) is not None and failure is not error:
            logger.error("%s", failure, exc_info=failure)

    def _closing(
        self,
        update: int,
        epoch: int,
        *,
        tokens: int,
        seconds: float,
        skipped: int = 0,
        times: Mapping[str, float] | None = None,
    ) -> dict[str, Any]:
        """Return the last figures of the log: means since the last record, and totals of the whole run."""
        event: dict[str, Any] = {"update": update, "epoch": epoch, "seconds": round(seconds, 1)}
        if self._meters.updates:
            event = self._meters.means(**event, memory_mb=round(self.memory() / 1e6, 1))
        return event | {"tokens": tokens, "skipped": skipped}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores."""
        return asdict(self._meters)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._meters = Meters(**{"weight": state.get("tokens", 0.0), **state})  # earlier versions had no weights

    def close(self) -> None:
        self._display.close()

    def _record(self, kind: str, update: int, place: Path | None = None, /, **fields: Any) -> dict[str, float]:
        """Record an event. Return the metrics that callbacks added to it. ``place``: of a checkpoint."""
        event = RunEvent(kind, self.folder, update, fields.get("epoch", self._epoch), fields, place)
        metrics = self.callbacks.receive(event)
        if kind == "end" and self.callbacks.failure is not None:
            return {}  # the failure is recorded instead
        if kind != "update":  # the log has means only
            self._log.write({"event": kind, "update": update, **fields, **metrics})
        self._sinks.receive(replace(event, fields=fields | metrics))
        return metrics


class SilentReporter(Reporter):
    """The reporter of every rank but 0: it shows and records nothing."""

    def __init__(self) -> None:
        self._meters = Meters()
        self.callbacks = Callbacks()

    def _ignore(self, *arguments: Any, **options: Any) -> None: ...

    start = update = skipped = warned = valid = samples = checkpoint = end = stopped = close = _ignore


def _spent(times: Mapping[str, float], processor: float | None) -> dict[str, Any]:
    """Return the seconds of the run by activity, and the CPU share, as events have them."""
    fields = {"times": {name: round(seconds, 2) for name, seconds in times.items()}} if times else {}
    return fields if processor is None else {**fields, "processor_share": round(processor, 3)}


class FirstUpdate:
    """Surround each update with ``inner``, and log the first update of a process: it allocates memory and selects kernels,
    and on a CPU a large batch takes a minute."""

    def __init__(
        self,
        inner: Callable[[int], AbstractContextManager[object]],
        style: ProgressStyle | None,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """``style``: None for a process that shows nothing; ``wait``: as of ``going_on``."""
        self._inner, self._style, self._wait = inner, style or ProgressStyle.none, wait

    def __call__(self, update: int) -> AbstractContextManager[object]:
        style, self._style = self._style, ProgressStyle.none
        return self._inner(update) if style is ProgressStyle.none else self._logged(update, style)

    @contextlib.contextmanager
    def _logged(self, update: int, style: ProgressStyle) -> Iterator[None]:
        logger.info(f"computing the first update, number {update:,}")
        with going_on("computing the first update", style, self._wait), self._inner(update):
            yield


@dataclass(frozen=True)
class Sample:
    """A sentence pair of the validation set, and its translation."""

    source: str
    reference: str
    hypothesis: str


def log_samples(samples: Sequence[Sample]) -> None:
    for number, sample in enumerate(samples, start=1):
        for name, text in asdict(sample).items():
            logger.info("sample %d %-11s %s", number, f"{name}:", text)


def cause_of(error: BaseException) -> str:
    """Return the cause as recorded: diverged, signal, out of memory, storage or error."""
    if (cause := _CAUSES.get(described(error)[0])) is not None:
        return cause
    of_memory = isinstance(error, MemoryError) or is_shortage(error) or is_shortage(error.__cause__ or error)
    return "out of memory" if of_memory else "error"


def message_of(error: BaseException) -> str:
    """Return the message for the user; the class of an unexpected error precedes it."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by a second Ctrl-C, before anything was saved"
    return str(error) if isinstance(error, (NMTError, CallbackError)) else f"{type(error).__name__}: {error}"


class Display:
    """A display receives every update, and figures at intervals. This one shows nothing."""

    def advance(self, update: int, epoch: int) -> bool:
        """Receive an update. Returns whether its figures must be shown, because a new epoch has begun."""
        return False

    def show(self, event: Event, *, ends_epoch: bool = False) -> None: ...

    def close(self) -> None: ...


class LineDisplay(Display):
    """Show figures as lines of the log."""

    def __init__(self, update: int, total: int | None, clock: Clock) -> None:
        self._first, self._total = update, total
        self._clock, self._began = clock, clock()

    def show(self, event: Event, *, ends_epoch: bool = False) -> None:
        of = "" if self._total is None else f"/{self._total}"
        line = (
            f"epoch {event['epoch']} | update {event['update']}{of} | loss {event['loss']:.4f} | nll {event['nll']:.4f} | "
            f"ppl {figure(event['ppl'])} | lr {event['lr']:.3e} | norm {event['grad_norm']:.3f} | "
            f"{event['tokens_per_second']:.0f} tokens/s | {megabytes(event['memory_mb'])}"
        )
        made = event["update"] - self._first
        if self._total is not None and made > 0:
            left = (self._clock() - self._began) / made * max(0, self._total - event["update"])
            line += f" | {duration(left)} left"
        logger.info("%s", f"{line} | the epoch ends" if ends_epoch else line)


class BarDisplay(Display):
    """Show a progress bar and the last figures below it, within 80 columns."""

    def __init__(self, update: int, total: int | None) -> None:
        self._epoch = 1 if update == 0 else None  # None: not known before the first update
        self._bar = open_bar(
            desc="" if self._epoch is None else f"epoch {self._epoch}",
            total=total,
            initial=update,
            smoothing=0,  # the time left at the mean speed of this process
            bar_format=_BAR_WITHOUT_END if total is None else _BAR,
        )
        self._figures = open_bar(bar_format="{desc}", position=1, leave=True)

    def advance(self, update: int, epoch: int) -> bool:
        begins, self._epoch = epoch != self._epoch, epoch
        self._bar.update(update - self._bar.n)
        if begins:
            self._bar.set_description_str(f"epoch {epoch}")
        return begins

    def show(self, event: Event, *, ends_epoch: bool = False) -> None:
        self._figures.set_description_str(
            f"loss {event['loss']:.3f} | ppl {figure(event['ppl'])} | norm {event['grad_norm']:.3f} | "
            f"lr {event['lr']:.2e} | {event['tokens_per_second']:.0f} tok/s | {megabytes(event['memory_mb'])}"
        )

    def close(self) -> None:
        self._bar.close()
        self._figures.close()

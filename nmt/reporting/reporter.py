"""What a run shows and records: a display, the log of events, and the sinks that receive them too."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from nmt.config.choices import ProgressStyle
from nmt.config.sections import ReportConfig
from nmt.devices import is_shortage
from nmt.errors import Diverged, Interrupted, NMTError, StorageError
from nmt.pages.numbers import duration, figure, megabytes
from nmt.progress import SECONDS_BETWEEN_LINES, Clock, open_bar, resolved
from nmt.reporting.figures import Meters, UpdateReport
from nmt.reporting.resources import peak_memory
from nmt.reporting.run_record import Cost, Event, EventLog, stretches
from nmt.reporting.sinks import Sinks, open_sinks
from nmt.storage.files import STORAGE_FAULTS

logger = logging.getLogger("nmt.training")

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_BAR_WITHOUT_END = "{desc} | update {n_fmt} [{elapsed}]"


@dataclass
class Reporter:
    """Collects updates and records their means at every ``log_interval``. Nothing that fails in here ends training.

    What is shown in between (at the first update, each half minute, at the end of an epoch, on a bar also at its
    beginning) are means over the epoch under way since the last record; they are not recorded.
    """

    folder: Path
    options: ReportConfig
    _: KW_ONLY
    total_updates: int | None
    memory: Callable[[], int] = lambda: peak_memory(torch.device("cpu"))  # the most that was held so far, in bytes
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._meters = Meters()  # since the last record
        self._of_epoch = Meters()  # the same, of the epoch under way alone
        self._epoch = 0
        self._log = EventLog(self.folder / "log.jsonl")
        self._sinks = Sinks({})
        self._display = Display()
        self._shown = -math.inf  # when the last figures were, by the clock
        self._cost = Cost()
        self._samples: Sequence[Sample] = ()

    def start(
        self,
        update: int,
        facts: Mapping[str, Any] | None = None,
        cost: Cost | None = None,
        seconds: float = 0.0,
        skipped: int = 0,
    ) -> None:
        """Begin, or go on after ``update``, ``seconds`` and ``skipped`` updates; later events are dropped from the log.
        ``facts`` are recorded: what the run is made of."""
        self._cost = cost or Cost()
        self._log.rewind(update, skipped)
        self._sinks = open_sinks(self.folder, self.options, update)
        if facts is not None:
            self._record("start", update, seconds=round(seconds, 1), **facts, **asdict(self._cost))
        style = resolved(self.options.progress)
        if style is ProgressStyle.bar:
            self._display = Bar(update, self.total_updates)
        elif style is ProgressStyle.lines:
            self._display = Lines(update, self.total_updates, self.clock)

    def update(
        self, update: int, epoch: int, report: UpdateReport, seconds: float, *, ends_epoch: bool = False
    ) -> None:
        """Take note of one update; ``seconds``: how long the run has taken so far."""
        if epoch != self._epoch:
            self._epoch, self._of_epoch = epoch, Meters()
        self._meters, self._of_epoch = self._meters.plus(report), self._of_epoch.plus(report)
        wanted = self._display.advance(update, epoch)
        recorded = update % self.options.log_interval == 0
        due = self.clock() - self._shown >= SECONDS_BETWEEN_LINES
        if not (recorded or ends_epoch or wanted or due):
            return
        meters = self._meters if recorded else self._of_epoch
        event = meters.means(update, epoch, round(self.memory() / 1e6, 1), round(seconds, 1))
        self._display.show(event, ends_epoch=ends_epoch)
        self._shown = self.clock()
        if recorded:
            self._record("train", **event)
            self._meters, self._of_epoch = Meters(), Meters()

    def skipped(self, update: int, epoch: int, figures: UpdateReport, *, number: int) -> None:
        """The ``number``-th update that was not made, as its loss or gradient is not finite. The figures are stored
        as text, for JSON knows no NaN."""
        loss, norm = str(figures.loss), str(figures.grad_norm)
        self._record("skipped", update, epoch=epoch, number=number, loss=loss, grad_norm=norm)

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        if self._samples:
            samples, self._samples = [asdict(sample) for sample in self._samples], ()
            self._record("samples", update, epoch=epoch, samples=samples)
        self._record("valid", update, epoch=epoch, **scores)
        figures = " | ".join(f"{name} {figure(value)}" for name, value in scores.items())
        logger.info(
            "epoch %d | update %d | validation | %s%s", epoch, update, figures, " | best so far" if best else ""
        )

    def samples(self, samples: Sequence[Sample]) -> None:
        """Show translations of a validation, whose scores follow."""
        log_samples(samples)
        self._samples = samples

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        self._record("checkpoint", update, epoch=epoch, path=path.name)
        logger.info("wrote %s", path)

    def end(self, update: int, epoch: int, *, ending: str, tokens: int, seconds: float, skipped: int = 0) -> None:
        """The run is over, because of ``ending``, after so many target tokens and skipped updates."""
        parts = stretches([*self._log.events(), {"event": "end", "seconds": round(seconds, 1)}])
        flops = self._cost.figures(tokens, parts)
        spent = {"tokens": tokens, "seconds": round(seconds, 1), "skipped": skipped}
        self._record("end", update, epoch=epoch, ending=ending, **spent, **flops)
        left_out = f" | {skipped} updates were skipped" if skipped else ""
        cost = "".join(f" | {value:.3g} operations {name.removeprefix('flops_')}" for name, value in flops.items())
        logger.info(f"trained on {tokens:,} target tokens in {duration(seconds)}{left_out}{cost}")

    def stopped(
        self, error: BaseException, *, update: int, epoch: int, tokens: int, seconds: float, skipped: int
    ) -> None:
        """The run goes no further for now, because of ``error``. Means are those since the last record."""
        event: dict[str, Any] = {"update": update, "epoch": epoch, "seconds": round(seconds, 1)}
        if self._meters.updates:
            event = self._meters.means(**event, memory_mb=round(self.memory() / 1e6, 1))
        event |= {"cause": cause_of(error), "message": said_of(error), "tokens": tokens, "skipped": skipped}
        self._record("stopped", **event)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return asdict(self._meters)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._meters = Meters(**state)

    def close(self) -> None:
        self._display.close()
        self._sinks.close()

    def _record(self, kind: str, /, update: int, **figures: Any) -> None:
        event = {"event": kind, "update": update, **figures}
        self._log.write(event)
        self._sinks.write(event)


class Unheard(Reporter):
    """Of a process that is not the first: it shows and records nothing."""

    def __init__(self) -> None:
        self._meters = Meters()

    def _ignore(self, *arguments: Any, **options: Any) -> None: ...

    start = update = skipped = valid = samples = checkpoint = end = stopped = close = _ignore


@dataclass(frozen=True)
class Sample:
    """A sentence of the validation set, and what the model makes of it."""

    source: str
    reference: str
    hypothesis: str


def log_samples(samples: Sequence[Sample]) -> None:
    for number, sample in enumerate(samples, start=1):
        for name, text in asdict(sample).items():
            logger.info("sample %d %-11s %s", number, f"{name}:", text)


def cause_of(error: BaseException) -> str:
    """One of: diverged, signal, out of memory, storage, error."""
    if isinstance(error, Diverged):
        return "diverged"
    if isinstance(error, (Interrupted, KeyboardInterrupt)):
        return "signal"
    if isinstance(error, MemoryError) or any(one is not None and is_shortage(one) for one in (error, error.__cause__)):
        return "out of memory"
    if isinstance(error, StorageError) or (isinstance(error, OSError) and error.errno in STORAGE_FAULTS):
        return "storage"
    return "error"


def said_of(error: BaseException) -> str:
    """The sentence for the user, with the class of what is a defect."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted by a second Ctrl-C, before anything was saved"
    return str(error) if isinstance(error, NMTError) else f"{type(error).__name__}: {error}"


class Display:
    """Is told of every update, and of figures now and then. This one shows nothing."""

    def advance(self, update: int, epoch: int) -> bool:
        """Take note of an update. Returns whether its figures should be shown, lest those on display be taken for the
        new epoch's."""
        return False

    def show(self, event: Event, *, ends_epoch: bool = False) -> None: ...

    def close(self) -> None: ...


class Lines(Display):
    """A line of the log each time."""

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


class Bar(Display):
    """Two lines of a terminal: the bar, and below it the last figures. Both fit 80 columns."""

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

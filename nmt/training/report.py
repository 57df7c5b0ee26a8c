"""What a run shows and records: a bar or lines, JSON events, TensorBoard."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from nmt.config.sections import ProgressStyle, ReportConfig
from nmt.errors import UsageError
from nmt.training.event_log import EventLog
from nmt.training.meters import Meters, UpdateReport

logger = logging.getLogger("nmt.training")


class Display(Protocol):
    """How progress looks to somebody watching."""

    def advance(self, update: int) -> None: ...

    def show(self, event: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Reporter:
    """Collects updates and reports them at every ``log_interval``. Nothing that fails in here ends training."""

    def __init__(
        self,
        folder: Path,
        options: ReportConfig,
        *,
        total_updates: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._total = total_updates
        self._clock = clock
        self._meters = Meters()
        self._log = EventLog(folder / "log.jsonl")
        self._folder = folder
        self._board: Any = None
        self._display: Display = Silence()

    def start(self, update: int) -> None:
        """Begin, or go on after ``update``; what an interrupted process recorded beyond it is dropped."""
        self._log.rewind(update)
        if self._options.tensorboard:
            self._board = _tensorboard(self._folder / "tensorboard", purge_step=update + 1)
        self._display = _display(self._options.progress, update, self._total, self._clock)

    def update(self, update: int, epoch: int, report: UpdateReport, seconds: float) -> None:
        """Take note of one update; ``seconds``: how long the run has taken so far."""
        self._meters.add(report)
        self._display.advance(update)
        if update % self._options.log_interval == 0:
            event = {"event": "train", "update": update, "epoch": epoch, **self._meters.means()}
            self._record({**event, "seconds": round(seconds, 1)})
            self._display.show(event)
            self._meters = Meters()

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        self._record({"event": "valid", "update": update, "epoch": epoch, **scores})
        figures = " | ".join(f"{name} {_figure(value)}" for name, value in scores.items())
        logger.info(
            "epoch %d | update %d | validation | %s%s", epoch, update, figures, " | best so far" if best else ""
        )

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        self._record({"event": "checkpoint", "update": update, "epoch": epoch, "path": path.name})
        logger.info("wrote %s", path)

    def state(self) -> dict[str, Any]:
        return self._meters.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._meters.restore(state)

    def close(self) -> None:
        self._display.close()
        if self._board is not None:
            self._board.close()

    def _record(self, event: dict[str, Any]) -> None:
        self._log.write(event)
        if self._board is None:
            return
        try:
            for name, value in event.items():
                if isinstance(value, float):
                    self._board.add_scalar(f"{event['event']}/{name}", value, event["update"])
        except Exception as error:  # a disk that is full, a writer thread that died
            logger.warning("TensorBoard is switched off, training goes on: %s", error)
            self._board = None


class Unheard(Reporter):
    """Of a process that is not the first: it follows what happens, shows and records nothing."""

    def __init__(self) -> None:
        self._meters = Meters()

    def start(self, update: int) -> None:
        pass

    def update(self, update: int, epoch: int, report: UpdateReport, seconds: float) -> None:
        pass

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        pass

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        pass

    def close(self) -> None:
        pass


class Silence:
    """Shows nothing."""

    def advance(self, update: int) -> None:
        pass

    def show(self, event: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Silence):
    """One line of the log at every report."""

    def __init__(self, update: int, total: int | None, clock: Callable[[], float]) -> None:
        self._first, self._total = update, total
        self._clock, self._began = clock, clock()

    def show(self, event: Mapping[str, Any]) -> None:
        update = event["update"]
        of = "" if self._total is None else f"/{self._total}"
        logger.info(
            "epoch %d | update %d%s | %s%s", event["epoch"], update, of, _train_figures(event), self._left(update)
        )

    def _left(self, update: int) -> str:
        if self._total is None or update <= self._first:
            return ""
        seconds = (self._clock() - self._began) / (update - self._first) * max(0, self._total - update)
        minutes, seconds = divmod(int(seconds), 60)
        return f" | {minutes // 60}:{minutes % 60:02}:{seconds:02} left"


class Expendable:
    """A stream that may be lost, to a full disk or a reader that left: from then on nothing is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> None:
        self._unless_lost(lambda: self._stream.write(text))

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # the bar asks for the encoding and the width

    def _unless_lost(self, action: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            action()
        except (OSError, ValueError):  # ValueError: it was closed
            self._lost = True


class Bar(Silence):
    """A tqdm bar on a terminal."""

    def __init__(self, update: int, total: int | None) -> None:
        from tqdm import tqdm

        stream = Expendable(sys.stderr)
        self._bar = tqdm(total=total, initial=update, unit="update", dynamic_ncols=True, file=stream)

    def advance(self, update: int) -> None:
        self._bar.update(update - self._bar.n)

    def show(self, event: Mapping[str, Any]) -> None:
        self._bar.set_description(f"epoch {event['epoch']}", refresh=False)
        self._bar.set_postfix_str(_train_figures(event))

    def close(self) -> None:
        self._bar.close()


def _display(style: ProgressStyle, update: int, total: int | None, clock: Callable[[], float]) -> Display:
    if style is ProgressStyle.auto:
        style = ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines
    if style is ProgressStyle.bar:
        return Bar(update, total)
    return Lines(update, total, clock) if style is ProgressStyle.lines else Silence()


def _train_figures(event: Mapping[str, Any]) -> str:
    return (
        f"loss {event['loss']:.4f} | nll {event['nll']:.4f} | ppl {_figure(event['ppl'])} | lr {event['lr']:.3e} | "
        f"norm {event['grad_norm']:.3f} | {event['tokens_per_second']:.0f} tokens/s"
    )


def _figure(value: float) -> str:
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def _tensorboard(folder: Path, purge_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "report.tensorboard=true, but TensorBoard is not installed: pip install 'nmt[tensorboard]'"
        ) from None
    return SummaryWriter(log_dir=str(folder), purge_step=purge_step)

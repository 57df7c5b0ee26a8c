"""How progress looks to somebody watching: lines of a log, or a bar on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from nmt.config.choices import ProgressStyle
from nmt.progress import Clock

logger = logging.getLogger("nmt.training")

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_BAR_WITHOUT_END = "{desc} | update {n_fmt} [{elapsed}]"


class Display(Protocol):
    """Is told of every update, and of figures now and then."""

    def advance(self, update: int, epoch: int) -> bool:
        """An update of this epoch is made. Whether it is one to show the figures of: else they could be taken for those
        of another epoch."""

    def show(self, event: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def choose_display(style: ProgressStyle, update: int, total: int | None, clock: Clock = time.monotonic) -> Display:
    """The display of a run that begins after ``update``. ``total``: updates of the whole run, if they are known."""
    if style is ProgressStyle.auto:
        style = ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines
    if style is ProgressStyle.bar:
        return Bar(update, total)
    return Lines(update, total, clock) if style is ProgressStyle.lines else Silence()


class Silence:
    """Shows nothing."""

    def advance(self, update: int, epoch: int) -> bool:
        return False

    def show(self, event: Mapping[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(Silence):
    """One line of the log each time."""

    def __init__(self, update: int, total: int | None, clock: Clock) -> None:
        self._first, self._total = update, total
        self._clock, self._began = clock, clock()

    def show(self, event: Mapping[str, Any]) -> None:
        update = event["update"]
        of = "" if self._total is None else f"/{self._total}"
        logger.info(
            "epoch %d | update %d%s | loss %.4f | nll %.4f | ppl %s | lr %.3e | norm %.3f | %.0f tokens/s | %s%s%s",
            event["epoch"],
            update,
            of,
            event["loss"],
            event["nll"],
            figure(event["ppl"]),
            event["lr"],
            event["grad_norm"],
            event["tokens_per_second"],
            megabytes(event["memory_mb"]),
            self._left(update),
            " | the epoch ends" if event.get("ends_epoch") else "",
        )

    def _left(self, update: int) -> str:
        if self._total is None or update <= self._first:
            return ""
        seconds = (self._clock() - self._began) / (update - self._first) * max(0, self._total - update)
        return f" | {duration(seconds)} left"


class Bar(Silence):
    """Two lines of a terminal: tqdm's bar, and below it the last figures. Both fit 80 columns."""

    def __init__(self, update: int, total: int | None) -> None:
        from tqdm import tqdm

        stream = Expendable(sys.stderr)
        self._epoch = 1 if update == 0 else None  # None: not known before the first update
        self._bar = tqdm(
            desc="" if self._epoch is None else f"epoch {self._epoch}",
            total=total,
            initial=update,
            smoothing=0,  # the time left at the mean speed of this process
            bar_format=_BAR_WITHOUT_END if total is None else _BAR,
            dynamic_ncols=True,
            file=stream,
        )
        self._figures = tqdm(bar_format="{desc}", dynamic_ncols=True, position=1, leave=True, file=stream)

    def advance(self, update: int, epoch: int) -> bool:
        begins, self._epoch = epoch != self._epoch, epoch
        self._bar.update(update - self._bar.n)
        if begins:
            self._bar.set_description_str(f"epoch {epoch}")
        return begins

    def show(self, event: Mapping[str, Any]) -> None:
        self._figures.set_description_str(
            f"loss {event['loss']:.3f} | ppl {figure(event['ppl'])} | norm {event['grad_norm']:.3f} | "
            f"lr {event['lr']:.2e} | {event['tokens_per_second']:.0f} tok/s | {megabytes(event['memory_mb'])}"
        )

    def close(self) -> None:
        self._bar.close()
        self._figures.close()


class Expendable:
    """A stream that may be lost, to a full disk or a reader that left: from then on nothing is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> None:
        self._unless_lost(lambda: self._stream.write(text))

    def flush(self) -> None:
        self._unless_lost(self._stream.flush)

    def __eq__(self, other: object) -> bool:
        """Equal to the stream: a line of the log that tqdm writes there must know that a bar is in its way."""
        return other is self or other is self._stream

    def __hash__(self) -> int:
        return hash(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)  # the bar asks for the encoding and the width

    def _unless_lost(self, action: Callable[[], object]) -> None:
        if self._lost:
            return
        try:
            action()
        except (OSError, ValueError):  # ValueError: it was closed
            self._lost = True


def figure(value: float) -> str:
    """A number with about four digits."""
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """As h:mm:ss."""
    minutes, whole = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"


def megabytes(value: float) -> str:
    """Millions of bytes, for people."""
    return f"{value / 1000:.1f} GB" if value >= 1000 else f"{value:.0f} MB"

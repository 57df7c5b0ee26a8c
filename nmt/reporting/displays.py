"""How training looks to somebody watching: a line of the log now and then, or a bar on a terminal."""

from __future__ import annotations

import logging
import time

from nmt.config.choices import ProgressStyle
from nmt.progress import Clock, open_bar, resolved
from nmt.reporting.figures import duration, figure, megabytes
from nmt.reporting.run_record import Event

logger = logging.getLogger("nmt.training")

_BAR = "{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_BAR_WITHOUT_END = "{desc} | update {n_fmt} [{elapsed}]"


class Display:
    """Is told of every update, and of figures now and then. This one shows nothing."""

    def advance(self, update: int, epoch: int) -> bool:
        """Take note of an update. Returns whether its figures should be shown, lest those on display be taken for the
        new epoch's."""
        return False

    def show(self, event: Event, *, ends_epoch: bool = False) -> None:
        pass

    def close(self) -> None:
        pass


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


def choose_display(style: ProgressStyle, update: int, total: int | None, clock: Clock = time.monotonic) -> Display:
    """The display of a run that begins after ``update``. ``total``: updates of the whole run, if they are known."""
    style = resolved(style)
    if style is ProgressStyle.bar:
        return Bar(update, total)
    return Lines(update, total, clock) if style is ProgressStyle.lines else Display()

"""What a run shows and records: a display, the log of events, and the sinks that receive them too."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nmt.config.sections import ReportConfig
from nmt.progress import Clock, Pace
from nmt.storage.event_log import EventLog, stretches
from nmt.training.displays import Display, Silence, choose_display, duration, figure
from nmt.training.memory import peak_memory
from nmt.training.meters import Meters, UpdateReport
from nmt.training.setup.cost import Cost
from nmt.training.sinks import Sinks, open_sinks
from nmt.training.stops import cause_of, said_of
from nmt.training.validation.validators import Sample, log_samples

logger = logging.getLogger("nmt.training")


class Reporter:
    """Collects updates and records them at every ``log_interval``. Nothing that fails in here ends training.

    What is shown in between (at the first update, each half minute, at the end of an epoch, on a bar also at the
    beginning) are the figures of the epoch under way since the last record. It is not recorded, and no figure that is
    depends on it.
    """

    def __init__(
        self,
        folder: Path,
        options: ReportConfig,
        *,
        total_updates: int | None,
        memory: Callable[[], int] = lambda: peak_memory(torch.device("cpu")),
        clock: Clock = time.monotonic,
    ) -> None:
        """``memory``: the most that was held so far, in bytes."""
        self._options = options
        self._total = total_updates
        self._memory = memory
        self._clock = clock
        self._meters = Meters()  # since the last record
        self._of_epoch = Meters()  # the same, of the epoch under way alone
        self._epoch = 0
        self._log = EventLog(folder / "log.jsonl")
        self._folder = folder
        self._sinks = Sinks({})
        self._display: Display = Silence()
        self._pace: Pace | None = None  # None: nothing has been shown since the start
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
        """Begin, or go on after ``update``, ``seconds`` and ``skipped`` updates; what an interrupted process recorded
        beyond is dropped.

        ``facts`` are recorded: what the run is made of.
        """
        self._cost = cost or Cost()
        self._log.rewind(update, skipped)
        self._sinks = open_sinks(self._folder, self._options, update)
        if facts is not None:
            event = {"event": "start", "update": update, "seconds": round(seconds, 1)}
            self._record({**event, **facts, **asdict(self._cost)})
        self._display = choose_display(self._options.progress, update, self._total, self._clock)

    def update(
        self, update: int, epoch: int, report: UpdateReport, seconds: float, *, ends_epoch: bool = False
    ) -> None:
        """Take note of one update; ``seconds``: how long the run has taken so far."""
        if epoch != self._epoch:
            self._epoch, self._of_epoch = epoch, Meters()
        for meters in (self._meters, self._of_epoch):
            meters.add(report)
        wanted = self._display.advance(update, epoch)
        recorded = update % self._options.log_interval == 0
        if recorded or ends_epoch or wanted or self._pace is None or self._pace.due():
            means = (self._meters if recorded else self._of_epoch).means()
            event = {"event": "train", "update": update, "epoch": epoch, **means}
            event |= {"memory_mb": round(self._memory() / 1e6, 1), "seconds": round(seconds, 1)}
            self._display.show({**event, "ends_epoch": ends_epoch})
            self._pace = Pace(self._clock)
            if recorded:
                self._record(event)
                self._meters, self._of_epoch = Meters(), Meters()

    def skipped(self, update: int, epoch: int, figures: UpdateReport, *, number: int) -> None:
        """An update was not made, the ``number``-th, because its loss or gradient is not finite; JSON has no numbers for
        that."""
        event = {"event": "skipped", "update": update, "epoch": epoch, "number": number}
        self._record(event | {"loss": str(figures.loss), "grad_norm": str(figures.grad_norm)})

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        if self._samples:
            samples, self._samples = [asdict(sample) for sample in self._samples], ()
            self._record({"event": "samples", "update": update, "epoch": epoch, "samples": samples})
        self._record({"event": "valid", "update": update, "epoch": epoch, **scores})
        figures = " | ".join(f"{name} {figure(value)}" for name, value in scores.items())
        logger.info(
            "epoch %d | update %d | validation | %s%s", epoch, update, figures, " | best so far" if best else ""
        )

    def samples(self, samples: Sequence[Sample]) -> None:
        """Show translations of a validation, whose figures follow."""
        log_samples(samples)
        self._samples = samples

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        self._record({"event": "checkpoint", "update": update, "epoch": epoch, "path": path.name})
        logger.info("wrote %s", path)

    def end(self, update: int, epoch: int, *, ending: str, tokens: int, seconds: float, skipped: int = 0) -> None:
        """The run is over, because of ``ending``, after so many target tokens and skipped updates."""
        event = {"event": "end", "update": update, "epoch": epoch, "ending": ending, "tokens": tokens}
        event |= {"seconds": round(seconds, 1), "skipped": skipped}
        flops = self._cost.figures(tokens, stretches([*self._log.events(), event]))
        self._record(event | flops)
        logger.info(
            "trained on %s target tokens in %s%s%s",
            f"{tokens:,}",
            duration(seconds),
            f" | {skipped} updates were skipped" if skipped else "",
            "".join(f" | {value:.3g} operations {name.removeprefix('flops_')}" for name, value in flops.items()),
        )

    def stopped(
        self, update: int, epoch: int, error: BaseException, *, tokens: int, seconds: float, skipped: int
    ) -> None:
        """The run goes no further for now, because of ``error``. The figures are those since the last record."""
        event = {"event": "stopped", "update": update, "epoch": epoch, "cause": cause_of(error)}
        event |= {"message": said_of(error), "tokens": tokens, "seconds": round(seconds, 1), "skipped": skipped}
        self._record((self._meters.means() if self._meters.updates else {}) | event)

    def state(self) -> dict[str, Any]:
        return self._meters.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._meters.restore(state)

    def close(self) -> None:
        self._display.close()
        self._sinks.close()

    def _record(self, event: dict[str, Any]) -> None:
        self._log.write(event)
        self._sinks.write(event)


class Unheard(Reporter):
    """Of a process that is not the first: it follows what happens, shows and records nothing."""

    def __init__(self) -> None:
        self._meters = Meters()

    def start(
        self,
        update: int,
        facts: Mapping[str, Any] | None = None,
        cost: Cost | None = None,
        seconds: float = 0.0,
        skipped: int = 0,
    ) -> None:
        pass

    def update(
        self, update: int, epoch: int, report: UpdateReport, seconds: float, *, ends_epoch: bool = False
    ) -> None:
        pass

    def skipped(self, update: int, epoch: int, figures: UpdateReport, *, number: int) -> None:
        pass

    def valid(self, update: int, epoch: int, scores: Mapping[str, float], *, best: bool) -> None:
        pass

    def samples(self, samples: Sequence[Sample]) -> None:
        pass

    def checkpoint(self, update: int, epoch: int, path: Path) -> None:
        pass

    def end(self, update: int, epoch: int, *, ending: str, tokens: int, seconds: float, skipped: int = 0) -> None:
        pass

    def stopped(
        self, update: int, epoch: int, error: BaseException, *, tokens: int, seconds: float, skipped: int
    ) -> None:
        pass

    def close(self) -> None:
        pass

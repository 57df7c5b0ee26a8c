"""The training loop, and requests to stop it. It receives finished parts and builds nothing; what a part does is its own
affair.

A run is a function of its configuration alone: batches depend on the position in the data, random numbers on the
update, the rate on the progress. A checkpoint therefore needs no generator states, and going on from one repeats the
uninterrupted run exactly.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from nmt.config.sections import TrainingConfig
from nmt.distributed.world import World
from nmt.errors import Interrupted
from nmt.optim import Progress
from nmt.reporting.reporter import Reporter
from nmt.training.checkpoints.keeper import Keeper
from nmt.training.checkpoints.optimizer_state import training_mode
from nmt.training.checkpoints.resume import Past, RunState, restarts_epoch
from nmt.training.checkpoints.store import BY_MINUTES, BY_UPDATES
from nmt.training.loop.batches import TrainingBatches, UpdateBatches
from nmt.training.loop.updater import BadUpdates, Settled, Updater
from nmt.training.validation import Validation, ValidationStopped, validation_due

logger = logging.getLogger("nmt.training")

GRACEFUL = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)  # two of batch systems, and Ctrl-C


@dataclass
class Trainer:
    """Makes updates until a limit is reached, validating and saving on the way."""

    batches: TrainingBatches
    updater: Updater
    validation: Validation
    keeper: Keeper
    reporter: Reporter
    bad_updates: BadUpdates
    pulse: Pulse
    limits: TrainingConfig
    around_update: Callable[[int], AbstractContextManager[object]] = contextlib.nullcontext  # watches each update
    state: RunState = field(default_factory=RunState)

    def run(self) -> str:
        """Train to the end and say why it is the end. ``Interrupted`` is raised after a request to stop."""
        self.pulse.listen()
        self.keeper.cadence.counts_from = self.pulse.now
        training_mode(self.updater.learner.optimizer)
        if self.state.interrupted is not None:
            self._validate_and_save(tuple(self.state.interrupted), validate=True)
        while (ending := self.ending()) is None:
            began = self.pulse.clock()
            update = self.state.update + 1
            batches = self.batches.at(self.state.position, update)
            self.updater.announce(self._coming(batches, update))
            with self.around_update(update):
                if not self._launch(batches, began):
                    continue
                made = self.updater.ahead or self._settle()
            self.state.seconds += self.pulse.listen()
            self._move(batches)
            self._report_written()
            made = made and (not self._pauses(batches) or self._settle())
            self._validate_and_save(self._due(batches, made), validate=self._validation_due(batches, made))
        return ending

    def _coming(self, batches: UpdateBatches, update: int) -> list[UpdateBatches]:
        """The update after this one, and more of them if batches are prepared further ahead."""
        coming = [self.batches.at(batches.following, update + 1)]
        while len(coming) * len(batches.batches) < self.updater.reader.ahead:
            coming.append(self.batches.at(coming[-1].following, update + len(coming) + 1))
        return coming

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do."""
        return self.ending() is not None and self.state.interrupted is None

    def ending(self) -> str | None:
        """Why training is over, or None."""
        limits, state = self.limits, self.state
        last = limits.last_update
        if last is not None and state.update >= last:
            more = "" if state.update == last else f", and {last} were asked for"
            return f"{state.update} updates are made{more}"
        if limits.max_epoch is not None and state.position.epoch > limits.max_epoch:
            return f"{limits.max_epoch} epochs are done"
        if limits.stop_time_hours is not None and state.seconds >= 3600 * limits.stop_time_hours:
            return f"{limits.stop_time_hours} hours have passed"
        return self.validation.ending()

    def restore(self, past: Past, resets: Set[str] = frozenset()) -> None:
        """Go on from a checkpoint; ``resets`` is what begins afresh."""
        best = self.validation.best
        self.keeper.put_back(past, afresh="reset_optimizer" in resets)
        if "reset_meters" in resets:
            logger.info("the best score so far is forgotten")
        else:
            best.restore(past.training.values["best"])
            self.reporter.restore(past.training.values["report"])
        self.state = past.state
        takes_over = "reset_lr_scheduler" in resets or past.changes("scheduler.")
        known = len(best.history)  # none if it is forgotten, or of another metric
        self.state.validations_before = known if takes_over else min(known, self.state.validations_before)
        if "reset_dataloader" in resets or restarts_epoch(past.changed):
            logger.info("epoch %d begins again with its first batch", self.state.position.epoch)
            self.state.position = self.batches.start_of_epoch(self.state.position.epoch, self.state.update + 1)

    def _move(self, batches: UpdateBatches) -> None:
        """On to what follows in the data."""
        before, following = self.state.position, batches.following
        self.state.epoch, self.state.position = batches.epoch, following
        if following.stage > before.stage:
            stage = self.batches.stages[following.stage]
            logger.info(
                "stage %d of training begins with epoch %d (%s)", following.stage + 1, following.epoch, stage.name
            )

    def _launch(self, batches: UpdateBatches, began: float) -> bool:
        """One update. False: the one before was not made, so that this one, which takes its number, is to begin again."""
        state, update = self.state, self.state.update + 1
        totals = self.updater.accumulate(update, batches)
        if not self._settle():
            return False
        validations = tuple(self.validation.best.history[state.validations_before :])
        self.updater.launch(batches, totals, Progress(update, batches.epoch, state.tokens, validations), began)
        state.update = update
        return True

    def _settle(self) -> bool:
        """Wait for the update that was launched last, if one was. False: it was not made, its gradient was not finite."""
        settled = self.updater.settle()
        if settled is None:
            return True
        state, batches, figures = self.state, settled.batches, settled.figures
        if figures.finite:
            state.tokens += figures.tokens
            state.skipped_in_row = 0
            self.reporter.update(state.update, batches.epoch, figures, state.seconds, ends_epoch=batches.ends_epoch)
        else:
            state.update -= 1
            self._skip(settled)
        return figures.finite

    def _skip(self, settled: Settled) -> None:
        learner, state, update = self.updater.learner, self.state, self.state.update + 1
        batches, figures = settled.batches, settled.figures
        if settled.overflow:
            logger.info("update %d is repeated with other data: %s", update, learner.arithmetic.reason())
        else:
            state.skipped += 1
            state.skipped_in_row += 1
            self.reporter.skipped(update, batches.epoch, figures, number=state.skipped)
            logger.warning("update %d is skipped: loss %s, gradient norm %s", update, figures.loss, figures.grad_norm)
            parameters = self.updater.without_finite_gradient(update, batches)
            if learner.world.main:
                sentences = [self.batches.batch(numbers) for numbers in batches.batches]
                path = self.bad_updates.record(update, batches.epoch, sentences, figures, parameters)
                if path is not None:
                    logger.warning("its sentences are in %s", path)
        learner.optimizer.zero_grad(set_to_none=True)
        if state.skipped_in_row >= self.limits.max_bad_updates:
            what = f"{state.skipped_in_row} updates in a row had a loss or gradient that is not finite"
            raise self.keeper.diverged(what)

    def _due(self, batches: UpdateBatches, made: bool) -> tuple[str, ...]:
        """Reasons to save. None after a bad update: perhaps the run has just gone wrong. An overflow is no bad sign."""
        if not made and self.state.skipped_in_row:
            return ()
        now, cadence = self.pulse.now, self.keeper.cadence
        reasons = cadence.due(self.state.update, batches.epoch, ends_epoch=batches.ends_epoch, now=now)
        return tuple(reason for reason in reasons if made or reason != BY_UPDATES)

    def _validation_due(self, batches: UpdateBatches, made: bool) -> bool:
        if not made and self.state.update == self.state.validated:
            return False  # nothing was learned since
        update, epoch = self.state.update if made else None, batches.epoch if batches.ends_epoch else None
        return validation_due(self.validation.options, update, epoch) or self.ending() is not None

    def _pauses(self, batches: UpdateBatches) -> bool:
        """Whether something comes after an update that is made for which it must be known whether it is."""
        return self.pulse.stopping or bool(self._due(batches, True)) or self._validation_due(batches, True)

    def _validate_and_save(self, reasons: tuple[str, ...], *, validate: bool) -> None:
        """After an update: validate if asked, and save if there is any reason to."""
        state, scores, improved = self.state, dict[str, float](), False
        state.interrupted = None
        if BY_MINUTES in reasons:
            self.keeper.cadence.counts_from = self.pulse.now
        if validate and self.validation.validators:
            try:
                scores, improved = self.validation(state.update, lambda: bool(self.pulse.stop))
                state.validated = state.update
                self.reporter.valid(state.update, state.epoch, scores, best=improved)
            except ValidationStopped:
                state.interrupted = reasons
            state.seconds += self.pulse.listen()
        finished = self.ending() is not None and state.interrupted is None
        stopped = self.pulse.stopping and not finished
        reasons += ("best",) * improved + ("final",) * finished + ("signal",) * stopped
        if reasons:
            best, report = self.validation.best.state(), self.reporter.state()
            self.keeper.save(state, reasons, scores, improved, best=best, report=report)
            self._report_written()
        if stopped:
            saved = f"update {state.update} is saved in {self.keeper.saver.store.folder}; resume with the same command"
            raise self.pulse.stop.interruption(saved)

    def _report_written(self) -> None:
        for info, path in self.keeper.saver.written():
            self.reporter.checkpoint(info.update, info.epoch, path)


class StopRequest:
    """Listens while its ``with`` block runs (in the main thread; elsewhere Python allows no handlers). A handler only
    takes a note; training acts on it after the update at hand. A second SIGINT leaves at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in GRACEFUL}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        return self.received is not None

    def interruption(self, message: str) -> Interrupted:
        """What to raise once everything is saved: 130 after Ctrl-C, else 75 (try again)."""
        by_hand = self.received is signal.SIGINT
        cause = "another process" if self.received is None else self.received.name
        return Interrupted(f"stopped by {cause}; {message}", exit_status=130 if by_hand else 75)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if self.received is signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # the next one raises KeyboardInterrupt


@dataclass
class Pulse:
    """What all processes must know alike: the time, by the clock of the first one, and whether any was asked to stop."""

    stop: StopRequest
    world: World
    clock: Callable[[], float] = time.monotonic
    now: float = 0.0  # seconds, when the processes last asked each other
    stopping: bool = False

    def listen(self) -> float:
        """Ask all processes; the seconds since they did so before."""
        before = self.now
        requests, self.now = self.world.sums([float(bool(self.stop)), self.clock() if self.world.main else 0.0])
        self.stopping = requests > 0
        return self.now - before

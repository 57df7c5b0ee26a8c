"""The training loop, and requests to stop it. It receives finished parts and builds nothing.

A run is a function of its configuration: batches depend on the position in the data, random numbers on the update, the
learning rate on the progress. A checkpoint therefore needs no state of random generators, and a resumed run repeats the
uninterrupted one exactly.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import time
from collections.abc import Callable, Set
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from types import FrameType

from nmt.config.sections import BY_EPOCH, BY_MINUTES, TrainingConfig
from nmt.distributed.world import World
from nmt.errors import AlreadyReported, DataError, Diverged, Interrupted, quantity
from nmt.interruptions import handled
from nmt.optim import Progress
from nmt.reporting.figures import UpdateReport
from nmt.reporting.reporter import Reporter
from nmt.reporting.stopwatch import CHECKPOINTS, READING, VALIDATION, Stopwatch
from nmt.storage.checkpoints import CheckpointInfo
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.checkpoints.run_state import RunSettings, RunState
from nmt.training.checkpoints.writer import CheckpointWriter
from nmt.training.loop.batches import TrainingBatches, UpdateBatches
from nmt.training.loop.divergence import LearningWatch
from nmt.training.loop.learner import Learner
from nmt.training.loop.learner_state import (
    non_finite_parameter,
    require_agreement,
    restore_learner,
    snapshot,
)
from nmt.training.loop.optimizer_state import training_mode
from nmt.training.loop.updater import BadUpdates, SettledUpdate, Updater, UpdateSums
from nmt.training.loop.validation import Validation, ValidationStopped

logger = logging.getLogger("nmt.training")

GRACEFUL = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)  # two of batch systems, and Ctrl-C
GENTLER = "a lower --lr, a longer --warmup-updates or --clip-norm 1 may help"


@dataclass(frozen=True)
class Decision:
    """What follows an update."""

    stop: bool  # the run ends here, at a limit or on request
    save: tuple[str, ...]  # reasons for a checkpoint
    validate: bool

    def __bool__(self) -> bool:
        return self.stop or self.validate or bool(self.save)


@dataclass
class Trainer:
    """Make updates until a limit is reached; validate and save between them."""

    batches: TrainingBatches
    updater: Updater
    validation: Validation
    checkpoints: CheckpointWriter
    settings: RunSettings
    reporter: Reporter
    bad_updates: BadUpdates
    stop: StopRequest
    limits: TrainingConfig
    around_update: Callable[[int], AbstractContextManager[object]] = contextlib.nullcontext  # watches each update
    watch: LearningWatch = field(default_factory=LearningWatch)
    clock: Callable[[], float] = time.monotonic
    state: RunState = field(default_factory=RunState)
    _now: float = 0.0  # rank 0's clock when the ranks last met
    _stopping: bool = False  # whether a rank had been asked to stop then
    _stopped_by: str | None = None  # the callback that asked for the end, and its reason
    _failed: bool = False  # whether a callback had failed then
    _minutes_from: float = 0.0  # when training began, or a checkpoint was last written for minutes
    _weightless: int = 0  # updates in a row whose weights are all 0
    _epoch_unsaved: bool = False  # an epoch ended with a skipped update; its checkpoint follows the next good update

    def run(self) -> str:
        """Train to the end and return the reason. Raises ``Interrupted`` after a signal, ``Diverged``, and the error of a
        callback."""
        self._begin()
        while (ending := self.ending()) is None:
            began, update = self.clock(), self.state.update + 1
            batches = self._next_batches(update)
            with self.around_update(update):
                sums = self.updater.accumulate(update, batches)
                if not self._settle():
                    continue  # the update before was skipped: this one takes its number, and starts again
                self._launch(batches, sums, began)
                applied = self.updater.launches_ahead or self._settle()  # launched ahead: presumed, until it is settled
            self._count_time()
            self._advance(batches)
            decision = self._decide(batches, applied)
            if decision and not self._settle():  # launched ahead, and then skipped
                decision = self._decide(batches, applied=False)
            self._validate_and_save(decision)
        self.require_learned()
        return ending

    @property
    def learner(self) -> Learner:
        return self.updater.learner

    @property
    def world(self) -> World:
        return self.learner.world

    @property
    def stopwatch(self) -> Stopwatch:
        return self.world.stopwatch

    @property
    def complete(self) -> bool:
        return self.ending() is not None and self.state.interrupted is None

    def ending(self) -> str | None:
        limits, state = self.limits, self.state
        last = limits.last_update
        if last is not None and state.update >= last:
            more = "" if state.update == last else f", and the limit is {last}"
            return f"{quantity(state.update, 'update')} {'is' if state.update == 1 else 'are'} made{more}"
        if limits.max_epoch is not None and state.position.epoch > limits.max_epoch:
            return f"{quantity(limits.max_epoch, 'epoch')} done"
        if limits.stop_time_hours is not None and state.seconds >= 3600 * limits.stop_time_hours:
            return f"--stop-time-hours {limits.stop_time_hours:g} is reached"
        best = self.validation.best
        if best.patience is not None and best.without_improvement >= best.patience:
            return f"{best.metric} did not improve in {quantity(best.patience, 'validation')}"
        return self._stopped_by  # not stored: a later start of the run asks its callbacks again

    def restore(self, point: ResumePoint, resets: Set[str] = frozenset()) -> None:
        """Resume from a checkpoint. ``resets``: keys of ``nmt.training.checkpoints.resume.RESETS`` that start afresh."""
        best = self.validation.best
        self.checkpoints.newest = point.stored.info
        restore_learner(self.learner, point, fresh_optimizer="reset_optimizer" in resets)
        if "reset_meters" in resets:
            logger.info("discarded the best score so far")
        else:
            best.restore(point.training.values["best"])
            self.reporter.restore(point.training.values["report"])
        self.state = point.state
        if self.state.too_large_for == self.updater.memory:
            self.updater.too_large = self.state.too_large
        if not resets and not point.changed:  # other options get the whole patience
            self.watch.restore(self.state.watched)
        is_new_schedule = "reset_lr_scheduler" in resets or point.changes("scheduler.")
        known = len(best.history)  # none if it was forgotten, or is of another metric
        self.state.validations_before = known if is_new_schedule else min(known, self.state.validations_before)
        if "reset_dataloader" in resets or point.restarts_epoch:
            logger.info("restarting epoch %d from its first micro-batch", self.state.position.epoch)
            self.state.position = self.batches.start_of_epoch(self.state.position.epoch, self.state.update + 1)

    def require_learned(self) -> None:
        """Refuse to call a diverged model the result of a run."""
        finding = self.watch.finding
        if finding is not None and self.watch.failed:
            raise self._diverged(finding, self.watch.good_until)
        if finding is not None:
            logger.warning(finding)

    def require_callbacks(self) -> None:
        """End the run on all ranks if a callback has failed."""
        self._meet()
        self._raise_failure()

    def _begin(self) -> None:
        self.require_callbacks()
        self.stopwatch.take()  # building the run does not count
        self._charge_time()  # every activity has a figure from the first event on
        self._minutes_from = self._now
        training_mode(self.learner.optimizer)
        if self.state.interrupted is not None:
            self._validate_and_save(Decision(stop=False, save=tuple(self.state.interrupted), validate=True))

    def _meet(self) -> float:
        """Share rank 0's clock and all requests to stop among the ranks. Return the seconds since the last call."""
        before, callbacks = self._now, self.reporter.callbacks
        own = [bool(self.stop), callbacks.stop is not None, callbacks.failure is not None]
        requests, ends, failures, self._now = self.world.sums(
            [*map(float, own), self.clock() if self.world.main else 0.0]
        )
        self._stopping, self._failed = requests > 0, failures > 0
        if ends and self._stopped_by is None:
            self._stopped_by = self.world.on_main(lambda: callbacks.stop)
        return self._now - before

    def _raise_failure(self) -> None:
        if self._failed:
            raise self.reporter.callbacks.failure or AlreadyReported("a callback failed on rank 0")

    def _count_time(self) -> None:
        """Add the time since the last call to that of the run."""
        self.state.seconds += self._meet()
        self._charge_time()

    def _charge_time(self) -> None:
        times = self.state.times
        self.state.times = {name: times.get(name, 0.0) + more for name, more in self.stopwatch.take().items()}

    def _next_batches(self, update: int) -> UpdateBatches:
        """Return the batches of an update, and announce those of the next one, or of more if readers prepare more."""
        with self.stopwatch.during(READING):
            batches = self.batches.at(self.state.position, update)
            coming = [self.batches.at(batches.following, update + 1)]
            while len(coming) * len(batches.batches) < self.updater.reader.lookahead:
                coming.append(self.batches.at(coming[-1].following, update + len(coming) + 1))
            self.updater.announce(coming)
        return batches

    def _advance(self, batches: UpdateBatches) -> None:
        before, following = self.state.position, batches.following
        self.state.epoch, self.state.position = batches.epoch, following
        if following.stage > before.stage:
            stage = self.batches.stages[following.stage]
            logger.info(
                "stage %d of training begins with epoch %d (%s)", following.stage + 1, following.epoch, stage.name
            )

    def _launch(self, batches: UpdateBatches, sums: UpdateSums, began: float) -> None:
        state = self.state
        validations = tuple(self.validation.best.history[state.validations_before :])
        progress = Progress(state.update + 1, batches.epoch, state.tokens, validations)
        self.updater.launch(batches, sums, progress, began)
        state.update += 1

    def _settle(self) -> bool:
        """Wait for the last launched update. False: it was skipped."""
        settled = self.updater.settle()
        if settled is None:
            return True
        state, batches, report = self.state, settled.batches, settled.report
        if settled.is_made:
            self._weightless = 0
            state.tokens += report.tokens
            state.skipped_in_row = 0
            self.reporter.update(
                state.update, batches.epoch, report, state.seconds, times=state.times, ends_epoch=batches.ends_epoch
            )
            self._watch(batches.epoch, report)
        else:
            state.update -= 1
            self._skip(settled)
        return settled.is_made

    def _watch(self, epoch: int, report: UpdateReport) -> None:
        """Warn if the run does not learn, and end it after too many such updates."""
        if not report.weight:
            return
        for message in self.watch.observe(self.state.update, report.nll / report.weight, report.grad_norm):
            advice = f"; {GENTLER}" if message == self.watch.finding else ""
            self.reporter.warned(self.state.update, epoch, f"{message}{advice}")
        if self.watch.stops:
            raise self._diverged(self.watch.finding or "", self.watch.good_until)

    def _skip(self, settled: SettledUpdate) -> None:
        learner, state, update = self.learner, self.state, self.state.update + 1
        batches, report = settled.batches, settled.report
        if settled.overflow:
            logger.info("update %d is repeated with other data: %s", update, learner.arithmetic.reason())
        elif report.finite:
            logger.warning("update %d is repeated with other data: all weights of its pairs are 0", update)
            self._weightless += 1
            if self._weightless > 2 * self.batches.updates_in_epoch(batches.epoch):  # parts of two epochs are no proof
                raise DataError(
                    "no pair of a whole epoch has a weight above 0; give other weights, or allow longer pairs (--max-tokens)"
                )
        else:
            state.skipped += 1
            state.skipped_in_row += 1
            self.reporter.skipped(update, batches.epoch, report, number=state.skipped)
            logger.warning("update %d is skipped: loss %s, gradient norm %s", update, report.loss, report.grad_norm)
            parameters = self.updater.without_finite_gradient(update, batches)
            if learner.world.main:
                sentences = [self.batches.batch(numbers) for numbers in batches.batches]
                path = self.bad_updates.record(update, batches.epoch, sentences, report, parameters)
                if path is not None:
                    logger.warning("the sentence pairs of update %d are in %s", update, path)
        learner.optimizer.zero_grad(set_to_none=True)
        if state.skipped_in_row >= self.limits.max_bad_updates:
            fault = f"{quantity(state.skipped_in_row, 'update')} in a row had a loss or gradient that is not finite"
            raise self._diverged(fault, self.watch.good_until if self.watch.finding else math.inf)

    def _diverged(self, fault: str, good_until: float | None = math.inf) -> Diverged:
        """Return the error that ends a diverged run, the same on all ranks. ``good_until``: the last good update; None:
        no update was good."""
        good = self.world.on_main(lambda: self.checkpoints.last_good(good_until))
        return Diverged(f"{fault}; {good}; {GENTLER}")

    def _decide(self, batches: UpdateBatches, applied: bool) -> Decision:
        """Decide what follows an update; ``applied``: it was not skipped."""
        state, ends = self.state, self.ending() is not None
        update, epoch = state.update if applied else None, batches.epoch if batches.ends_epoch else None
        save = self.checkpoints.store.options.reasons_to_save(update, epoch, (self._now - self._minutes_from) / 60)
        if not applied and state.skipped_in_row:  # the run may have diverged; an fp16 overflow is normal
            self._epoch_unsaved = self._epoch_unsaved or BY_EPOCH in save
            save = ()
        elif self._epoch_unsaved and BY_EPOCH not in save:
            save += (BY_EPOCH,)
        learned = applied or state.update != state.validated
        validate = learned and (ends or self.validation.options.is_due(update, epoch))
        return Decision(self._stopping or self._failed or ends, save, validate)

    def _validate_and_save(self, decision: Decision) -> None:
        self._report_written()
        if not decision:
            return
        state, reasons, scores, improved = self.state, decision.save, dict[str, float](), False
        state.interrupted = None
        if BY_MINUTES in reasons:
            self._minutes_from = self._now
        if BY_EPOCH in reasons:
            self._epoch_unsaved = False
        if decision.validate and self.validation.validators:
            try:
                with self.stopwatch.during(VALIDATION):
                    scores, improved = self.validation(state.update, lambda: self._failed or bool(self.stop))
                state.validated = state.update
                self.reporter.valid(state.update, state.epoch, scores, best=improved)
            except ValidationStopped:
                state.interrupted = reasons
            self._count_time()
        finished = self.complete
        stopped = self._stopping and not finished
        reasons += ("best",) * improved + ("final",) * finished + ("signal",) * stopped + ("callback",) * self._failed
        if reasons:
            with self.stopwatch.during(CHECKPOINTS):
                self._save(reasons, scores, improved)
            self._charge_time()
            self._report_written()
        self._raise_failure()
        if stopped:
            saved = f"update {state.update} is saved in {self.checkpoints.store.folder}; resume with the same command"
            raise self.stop.interruption(saved)

    def _save(self, reasons: tuple[str, ...], scores: dict[str, float], improved: bool) -> None:
        state, watch = self.state, self.watch
        if (name := non_finite_parameter(self.learner)) is not None:
            raise self._diverged(f"after update {state.update} the parameter {name} is not finite")
        require_agreement(self.learner, state.update)
        state.watched = watch.state()
        state.too_large, state.too_large_for = self.updater.too_large, self.updater.memory
        values = {"run": asdict(state), "best": self.validation.best.state(), "report": self.reporter.state()}
        info = CheckpointInfo(state.update, state.epoch, reasons, scores, self.settings.lasting())
        good_until = watch.good_until if watch.in_doubt else None
        with snapshot(self.learner, info, values | asdict(self.settings), good_until) as state_snapshot:
            self.world.on_main(lambda: self.checkpoints.save(state_snapshot, best=improved))

    def _report_written(self) -> None:
        for info, path in self.checkpoints.written():
            self.reporter.checkpoint(info.update, info.epoch, path)


class StopRequest:
    """Listen for signals during a ``with`` block; no effect outside the main thread, where Python allows no handlers. A
    handler only notes the signal, and training acts on it after the update. A second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> StopRequest:
        self._handlers.enter_context(handled(GRACEFUL, self._note))
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.close()

    def __bool__(self) -> bool:
        return self.received is not None

    def interruption(self, message: str) -> Interrupted:
        """Return the error to raise once everything is saved: status 130 after Ctrl-C, else 75 (try again)."""
        by_hand = self.received is signal.SIGINT
        cause = "another process" if self.received is None else self.received.name
        return Interrupted(f"stopped by {cause}; {message}", exit_status=130 if by_hand else 75)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if self.received is signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # the next one raises KeyboardInterrupt

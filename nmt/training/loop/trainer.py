"""The training loop. It receives finished parts and builds nothing; what a part does is its own affair.

A run is a function of its configuration alone: batches depend on the position in the data, random numbers on the
update, the rate on the progress. A checkpoint therefore needs no generator states, and going on from one repeats the
uninterrupted run exactly.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config.sections import TrainingConfig, ValidationConfig
from nmt.distributed.world import World, digest
from nmt.errors import Diverged, NMTError
from nmt.optim import APPLIED_RATE, Progress, Schedule
from nmt.storage.checkpoints import CheckpointInfo, StoredCheckpoint, TrainingState, load_parameters
from nmt.training.checkpoints import optimizer_state
from nmt.training.checkpoints.resume import restarts_epoch, training_state
from nmt.training.checkpoints.retention import BY_MINUTES, BY_UPDATES, Cadence
from nmt.training.checkpoints.saver import Saver
from nmt.training.checkpoints.store import Snapshot
from nmt.training.loop.accumulation import SMALLER_BATCHES, Accumulation
from nmt.training.loop.bad_updates import BadUpdates, without_finite_gradient
from nmt.training.loop.batches import Position, TrainingBatches, UpdateBatches
from nmt.training.loop.modes import evaluation_mode, resume_training, training_mode
from nmt.training.loop.precision import Arithmetic
from nmt.training.loop.reading import reader
from nmt.training.loop.run_state import RunState
from nmt.training.loop.signals import StopRequest
from nmt.training.loop.step import Step, Totals, clip, divide, explained_shortage
from nmt.training.loop.stepping import Launched, Stepping, runs_ahead
from nmt.training.meters import UpdateReport
from nmt.training.report import Reporter
from nmt.training.validation.best_score import BestScore
from nmt.training.validation.validators import ValidationStopped, Validator, validate

logger = logging.getLogger("nmt.training")

LASTING = ("vocabularies", "precision", "validated_as")  # facts that a checkpoint keeps when it cannot be resumed
LESS_HASTE = "a lower --lr, a longer --warmup-updates or --clip-norm 1 may help"


class Trainer:
    """Trains ``step`` until a limit is reached, validating and saving on the way."""

    def __init__(
        self,
        *,
        step: Step,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        batches: TrainingBatches,
        validators: Sequence[Validator],
        best: BestScore,
        saver: Saver,
        cadence: Cadence,
        reporter: Reporter,
        bad_updates: BadUpdates,
        stop: StopRequest,
        limits: TrainingConfig,
        validation: ValidationConfig,
        arithmetic: Arithmetic,
        world: World,
        seed: int,
        facts: Mapping[str, Any],
        around_update: Callable[[int], AbstractContextManager[object]] = contextlib.nullcontext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``facts`` are stored with every checkpoint, for whoever restores it; ``around_update`` watches each update."""
        self.state = RunState()
        self._step = step
        self._optimizer = optimizer
        self._base_rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._schedule = schedule
        self._batches = batches
        self._validators = validators
        self._best = best
        self._saver = saver
        self._cadence = cadence
        self._reporter = reporter
        self._bad_updates = bad_updates
        self._stop = stop
        self._limits = limits
        self._validation = validation
        self._arithmetic = arithmetic
        self._world = world
        self._gradients = Accumulation(step, reader(batches.batch, arithmetic.device), arithmetic, world, seed)
        self._make = Stepping(optimizer, ahead=runs_ahead(optimizer, arithmetic, world))
        self._launched: Launched | None = None
        self._settled = 0.0  # when the figures of the update before were known
        self._seed = seed
        self._facts = facts
        self._around_update = around_update
        self._clock = clock
        self._mark = 0.0  # when the update before ended, by the clock of the first process
        self._stopping = False  # all processes know of a request to stop
        self._saved: CheckpointInfo | None = None  # the last checkpoint

    def run(self) -> str:
        """Train to the end and say why it is the end. ``Interrupted`` is raised after a request to stop."""
        self._listen()
        self._cadence.start(self._mark)
        training_mode(self._optimizer)
        if self.state.interrupted is not None:
            self._validate_and_save(self.state.interrupted, validate=True)
        while (ending := self.ending()) is None:
            began = self._clock()
            batches = self._batches.at(self.state.position)
            self._gradients.announce(self._batches.at(batches.following).batches)
            with self._around_update(self.state.update + 1):
                if not self._launch(batches, began):
                    continue
                made = self._make.made(self._settle)
            self._advance(batches)
            self._report_written()
            made = made and (not self._pauses(batches) or self._settle())
            self._validate_and_save(self._due(batches, made), validate=self._validation_due(batches, made))
        return ending

    @property
    def complete(self) -> bool:
        """Whether there is nothing left to do."""
        return self.ending() is not None and self.state.interrupted is None

    def ending(self) -> str | None:
        """Why training is over, or None."""
        limits, state = self._limits, self.state
        last = limits.last_update
        if last is not None and state.update >= last:
            more = "" if state.update == last else f", and {last} were asked for"
            return f"{state.update} updates are made{more}"
        if limits.max_epoch is not None and state.position.epoch > limits.max_epoch:
            return f"{limits.max_epoch} epochs are done"
        if limits.stop_time_hours is not None and state.seconds >= 3600 * limits.stop_time_hours:
            return f"{limits.stop_time_hours} hours have passed"
        if self._best.exhausted:
            return f"{self._best.metric} did not improve in {self._validation.patience} validations"
        return None

    def restore(self, stored: StoredCheckpoint, changed: Mapping[str, str], resets: Set[str] = frozenset()) -> None:
        """Go on from a checkpoint; ``changed`` are the options that are others now, with the user's consent, ``resets``
        what is to begin afresh."""
        self._saved = stored.info
        training = training_state(stored)
        values = training.values
        self._load(self._step.model, stored.model, stored)
        self._load(self._step.criterion, _under("criterion.", training.tensors), stored)
        if "reset_optimizer" in resets:
            logger.info("the optimizer begins afresh, from the weights of the checkpoint's model")
        else:
            self._restore_optimizer(training, changed)
        if "reset_meters" in resets:
            logger.info("the best score so far is forgotten")
        else:
            self._best.restore(values["best"])
            self._reporter.restore(values["report"])
        self._arithmetic.restore(values["arithmetic"])
        self.state = RunState.from_values(values["run"])
        takes_over = "reset_lr_scheduler" in resets or any(key.startswith("scheduler.") for key in changed)
        past = len(self._best.history)  # none if it is forgotten, or of another metric
        self.state.validations_before = past if takes_over else min(past, self.state.validations_before)
        if "reset_dataloader" in resets or restarts_epoch(changed):
            self.state.position = Position(self.state.position.epoch)

    def _restore_optimizer(self, training: TrainingState, changed: Mapping[str, str]) -> None:
        same_rule = not any(key.startswith(("optimizer.", "parameters.")) for key in changed)
        if same_rule or "optimizer.name" not in changed:
            tensors, place = _under("optimizer.", training.tensors), self._world.placed
            entries = training.values["optimizer"]
            numbers = optimizer_state.unpack(self._optimizer, tensors, entries, groups=same_rule, place=place)
            if numbers is not None:
                resume_training(self._optimizer, _under("training_weights.", training.tensors), numbers, place)

    def _load(self, module: nn.Module, tensors: Mapping[str, Tensor], stored: StoredCheckpoint) -> None:
        own = module.state_dict()
        placed = {name: self._world.placed(tensor, own.get(name, tensor)) for name, tensor in tensors.items()}
        load_parameters(module, placed, str(stored.path))

    def _launch(self, batches: UpdateBatches, began: float) -> bool:
        """One update. False: the one before was not made, so that this one, which takes its number, is to begin again."""
        totals = self._gradients(self.state.update + 1, batches.batches)
        if not self._settle():
            return False
        with explained_shortage(
            f"at update {self.state.update + 1}, after its gradients were computed", SMALLER_BATCHES
        ):
            self._apply(batches, totals, began)
        return True

    def _apply(self, batches: UpdateBatches, totals: Totals, began: float) -> None:
        """The second half of an update: from its gradients to the new parameters."""
        update = self.state.update + 1
        parameters, gradients = self._divided(totals)
        norm = self._world.norm(gradients)

        validations = tuple(self._best.history[self.state.validations_before :])
        factor = self._schedule(Progress(update, batches.epoch, self.state.tokens, validations))
        for group, base_rate in zip(self._optimizer.param_groups, self._base_rates):
            group["lr"] = base_rate * factor
        figures = totals.figures(norm, learning_rate=self._base_rates[0] * factor)
        self._make(figures, lambda: clip(parameters, norm, self._limits))
        self._launched = Launched(batches, figures, began)
        self.state.update = update

    def _divided(self, totals: Totals) -> tuple[list[nn.Parameter], list[Tensor]]:
        """Parameters, and their gradients of the mean loss."""
        parameters = [parameter for parameter in self._step.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        divide(gradients, self._arithmetic.scaled(totals.denominator) / self._world.size)
        return parameters, gradients

    def _settle(self) -> bool:
        """Wait for the update that was launched last, if one was. False: it was not made, its gradient was not finite; of
        it nothing is left but its place in the data."""
        launched, self._launched = self._launched, None
        if launched is None:
            return True
        figures = launched.figures.fetch()
        overflow = self._arithmetic.observe(loss=figures.loss, gradient=figures.grad_norm)
        before, self._settled = max(launched.began, self._settled), self._clock()
        if figures.finite:
            rate = self._optimizer.param_groups[0].get(APPLIED_RATE, figures.learning_rate)
            self._account(launched.batches, replace(figures, learning_rate=rate, seconds=self._settled - before))
        else:
            self.state.update -= 1
            self._skip(launched.batches, figures, overflow=overflow)
        return figures.finite

    def _account(self, batches: UpdateBatches, figures: UpdateReport) -> None:
        self.state.tokens += figures.tokens
        self.state.skipped_in_row = 0
        self._reporter.update(
            self.state.update, batches.epoch, figures, self.state.seconds, ends_epoch=batches.ends_epoch
        )

    def _skip(self, batches: UpdateBatches, figures: UpdateReport, *, overflow: bool) -> None:
        """The optimizer's averages would never recover from one NaN, so they must not see it."""
        if overflow:
            logger.info("update %d is repeated with other data: %s", self.state.update + 1, self._arithmetic.reason())
        else:
            self._note_bad(batches, figures)
        self._optimizer.zero_grad(set_to_none=True)
        if self.state.skipped_in_row >= self._limits.max_bad_updates:
            raise self._diverged(
                f"{self.state.skipped_in_row} updates in a row had a loss or gradient that is not finite"
            )

    def _note_bad(self, batches: UpdateBatches, figures: UpdateReport) -> None:
        update = self.state.update + 1
        self.state.skipped += 1
        self.state.skipped_in_row += 1
        self._reporter.skipped(update, batches.epoch, figures, number=self.state.skipped)
        logger.warning("update %d is skipped: loss %s, gradient norm %s", update, figures.loss, figures.grad_norm)
        self._make.recall(lambda: self._divided(self._gradients(update, batches.batches)))
        parameters = without_finite_gradient(self._step.named_parameters(), self._world)
        if self._world.main:
            sentences = [self._batches.batch(indices) for indices in batches.batches]
            path = self._bad_updates.record(update, batches.epoch, sentences, figures, parameters)
            if path is not None:
                logger.warning("its sentences are in %s", path)

    def _diverged(self, what: str) -> Diverged:
        last = self._saver.last()
        good = "there is no checkpoint yet" if last is None else f"the last good checkpoint is {last}"
        return Diverged(f"{what}; {good}; {LESS_HASTE}")

    def _listen(self) -> None:
        """What all processes must know alike: whether one was asked to stop, and the time."""
        requests, now = self._world.sums([float(bool(self._stop)), self._clock() if self._world.main else 0.0])
        self._stopping = requests > 0
        self._mark = now

    def _advance(self, batches: UpdateBatches) -> None:
        self._count_time()
        self.state.epoch, self.state.position = batches.epoch, batches.following

    def _count_time(self) -> None:
        before = self._mark
        self._listen()
        self.state.seconds += self._mark - before

    def _due(self, batches: UpdateBatches, made: bool) -> tuple[str, ...]:
        """Reasons to save. None after a bad update: perhaps the run has just gone wrong. An overflow is no bad sign."""
        if not made and self.state.skipped_in_row:
            return ()
        reasons = self._cadence.due(self.state.update, batches.epoch, ends_epoch=batches.ends_epoch, now=self._mark)
        return tuple(reason for reason in reasons if made or reason != BY_UPDATES)

    def _validation_due(self, batches: UpdateBatches, made: bool) -> bool:
        options = self._validation
        by_updates = options.interval_updates is not None and made and self.state.update % options.interval_updates == 0
        by_epochs = options.interval is not None and batches.ends_epoch and batches.epoch % options.interval == 0
        return by_updates or by_epochs or self.ending() is not None

    def _pauses(self, batches: UpdateBatches) -> bool:
        """Whether something comes after an update that is made for which it must be known whether it is."""
        return self._stopping or bool(self._due(batches, True)) or self._validation_due(batches, True)

    def _validate_and_save(self, reasons: tuple[str, ...], *, validate: bool) -> None:
        """After an update: validate if asked, and save if there is any reason to."""
        state, scores, improved = self.state, dict[str, float](), False
        state.interrupted = None
        if BY_MINUTES in reasons:
            self._cadence.start(self._mark)
        if validate and self._validators:
            try:
                scores, improved = self._validate()
            except ValidationStopped:
                state.interrupted = reasons
            self._count_time()
        finished = self.ending() is not None and state.interrupted is None
        reasons += ("best",) * improved + ("final",) * finished + ("signal",) * (self._stopping and not finished)
        if reasons:
            made = {name: self._facts[name] for name in LASTING if name in self._facts}
            info = CheckpointInfo(state.update, state.epoch, reasons, scores, made)
            self._saved = info.joined(self._saved)
            self._save(self._saved, best=improved)
        if self._stopping and not finished:
            raise self._stop.interruption(
                f"update {state.update} is saved in {self._saver.folder}; resume with the same command"
            )

    def _validate(self) -> tuple[dict[str, float], bool]:
        """The figures, and whether they are the best so far."""
        state = self.state
        with self._evaluating(), self._world.whole():
            scores = validate(self._validators, self._seed, state.update, lambda: bool(self._stop))
        improved = self._best.metric in scores and self._best.observe(scores[self._best.metric], state.update)
        self._reporter.valid(state.update, state.epoch, scores, best=improved)
        return scores, improved

    def _require_finite(self) -> None:
        """No update mends a parameter that is not finite, so such a checkpoint would only spoil the run."""
        trained = ((name, parameter) for name, parameter in self._step.named_parameters() if parameter.requires_grad)
        own = next((name for name, parameter in trained if not self._world.held(parameter).isfinite().all()), None)
        if found := [name for name in self._world.gather(own) if name is not None]:
            raise self._diverged(f"after update {self.state.update} the parameter {found[0]} is not finite")

    def _require_agreement(self) -> None:
        """Processes that train one model have the same parameters, bit for bit, or something went wrong unnoticed."""
        digests = self._world.gather(digest(self._world.replicas(self._step.parameters())))
        if len(set(digests)) > 1:
            raise NMTError(
                f"after update {self.state.update} the processes have different parameters (sums {digests}); start again "
                f"from the last checkpoint, and look for a faulty device if it happens again"
            )

    def _save(self, info: CheckpointInfo, *, best: bool) -> None:
        self._require_finite()
        self._require_agreement()
        with self._evaluating() as training_weights:
            tensors, values = optimizer_state.pack(self._optimizer)
            named = _prefixed("optimizer.", tensors) | _prefixed("training_weights.", training_weights)
            named |= _prefixed("criterion.", self._step.criterion.state_dict())
            training = TrainingState(
                self._world.gathered(named),
                {
                    "run": self.state.values(),
                    "best": self._best.state(),
                    "report": self._reporter.state(),
                    "arithmetic": self._arithmetic.state(),
                    "optimizer": values,
                    **self._facts,
                },
            )
            snapshot = Snapshot(info, self._world.gathered(self._step.model.state_dict()), training)
            required = bool({"final", "signal"} & set(info.reasons))
            self._world.on_main(lambda: self._saver.save(snapshot, best=best, required=required))
        self._report_written()

    def _report_written(self) -> None:
        for info, path in self._saver.written():
            self._reporter.checkpoint(info.update, info.epoch, path)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[dict[str, Tensor]]:
        """Modules in eval mode, and the optimizer's weights for evaluation where it keeps two kinds."""
        self._step.eval()
        try:
            with evaluation_mode(self._optimizer) as training_weights:
                yield training_weights
        finally:
            self._step.train()


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}

"""From a configuration to a finished run: the one place that knows which part is built from what."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.config.choices import Precision
from nmt.config.plain import to_plain
from nmt.config.sections import LOSSES, TrainConfig
from nmt.config.span import Span
from nmt.devices import choose_device, make_current, own_device, require_precision, set_threads
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.optim import Horizon, Schedule, default_warmup, schedulers
from nmt.scoring import Scorer
from nmt.storage.checkpoints import CheckpointInfo, StoredCheckpoint, read_checkpoint
from nmt.storage.leftovers import remove_leftovers
from nmt.storage.lock import Lock
from nmt.training import token_budget
from nmt.training.bad_updates import BadUpdates
from nmt.training.batches import Position, TrainingBatches
from nmt.training.compilation import compile_layers
from nmt.training.contradictions import Case, check
from nmt.training.cost import known_cost
from nmt.training.datasets import Datasets, open_datasets
from nmt.training.differences import differences
from nmt.training.facts import describe_run
from nmt.training.fingerprint import fingerprint, validation_fingerprint
from nmt.training.joining import join
from nmt.training.length import compare_length, number_of_updates, tell_limits
from nmt.training.memory import peak_memory
from nmt.training.metrics import build_scorers, higher_is_better
from nmt.training.other_models import start_from
from nmt.training.parts import build_arithmetic, build_model, build_optimizer, build_step, save_memory
from nmt.training.precision import Arithmetic
from nmt.training.profiling import Profiler
from nmt.training.report import Reporter, Unheard
from nmt.training.resume import check_unchanged, due_resets, training_state
from nmt.training.retention import Cadence
from nmt.training.run_record import RunRecord
from nmt.training.run_state import RunState
from nmt.training.saver import Saver
from nmt.training.signals import StopRequest
from nmt.training.step import Step
from nmt.training.stopping import BestScore
from nmt.training.store import CheckpointStore
from nmt.training.trainer import Trainer
from nmt.training.validation import Place, TranslationValidator, Validator, build_validators
from nmt.training.world import World

logger = logging.getLogger("nmt.training")


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run leaves."""

    folder: Path
    update: int
    epoch: int
    ending: str  # why it is the end
    metric: str
    best: float | None  # the best value of `metric`; None: never validated
    checkpoint: Path | None  # the best one, else the last
    failures: Mapping[str, str] = field(default_factory=dict)  # metrics that could not be computed, and why


def train(config: TrainConfig) -> TrainingResult:
    """Train as ``config`` says. The same call goes on where an interrupted one stopped."""
    if not config.data or config.seed < 0:
        check(Case(config, longest=None, max_update=config.training.last_update))
    # whatever these refuse is said before anything is opened
    device, built = _device(config), build_scorers(config.validation)
    with join(config.distributed, device) as world:
        if config.training.cuda_graphs and world.size > 1:
            raise UsageError("training.cuda_graphs=true is for one process; leave --cuda-graphs out")
        datasets = open_datasets(config)
        config = token_budget.decide(config, datasets, device, world)
        batches = TrainingBatches(datasets.train, config.batching, config.seed, world.size)
        max_update = number_of_updates(config, batches, datasets)
        check(Case(config, datasets.longest, max_update))
        tell_limits(config)
        with _holding(Path(config.checkpoint.save_dir), world), StopRequest() as stop:
            run = _Run(config, datasets, batches, max_update, stop, device, built, world)
            with run.saver:  # ends before another process may write to the folder
                return run.to_the_end()


@contextlib.contextmanager
def _holding(folder: Path, world: World) -> Iterator[None]:
    """The run folder belongs to this run alone, and what an interrupted process left in it is gone."""
    with contextlib.ExitStack() as held:

        def take() -> None:
            held.enter_context(Lock(folder))
            for name in remove_leftovers(folder):
                logger.info("removed %s, which an interrupted process left", name)

        world.on_main(take)
        yield


class _Run:
    """The parts of one run, each made once."""

    def __init__(
        self,
        config: TrainConfig,
        datasets: Datasets,
        batches: TrainingBatches,
        max_update: int | None,
        stop: StopRequest,
        device: torch.device,
        built: Mapping[str, Scorer],
        world: World,
    ) -> None:
        self._config = config
        self._world = world
        self._datasets = datasets
        self._batches = batches
        self._max_update = max_update
        self._stop = stop
        self._device = device
        self._folder = Path(config.checkpoint.save_dir)
        self._scorers = built
        self._translations: TranslationValidator | None = None
        traced = config.report.profile if world.main else None
        self._profiler = Profiler(Span.parse(traced, "report.profile"), self._folder, device) if traced else None
        self._best = BestScore(
            config.validation.best_metric,
            higher_is_better=higher_is_better(config.validation.best_metric, built),
            patience=config.validation.patience,
        )
        self._store = CheckpointStore(
            self._folder,
            config.checkpoint,
            config=to_plain(config),
            tokenizer=datasets.tokenizer,
            metric=self._best.metric,
            higher_is_better=self._best.higher_is_better,
        )
        self.saver = Saver(self._store, asynchronous=config.checkpoint.asynchronous)
        self._facts: dict[str, Any] = {
            "vocabularies": datasets.pair.digest(),
            "fingerprint": fingerprint(config, datasets.identities, datasets.valid_identities),
            "warmup_updates": default_warmup(max_update),
            "max_update": max_update,
            "batches_in_update": batches.batches_in_update,
        }

    def to_the_end(self) -> TrainingResult:
        stored = self._restored()
        changed: Mapping[str, str] = {}
        if stored is not None:
            changed = check_unchanged(
                stored,
                self._facts["fingerprint"],
                vocabularies=self._facts["vocabularies"],
                batches_in_update=self._batches.batches_in_update,
                options=self._config.checkpoint,
            )
            values = training_state(stored).values
            # what was derived from the length of the run stays, although the run may have become longer
            self._facts["warmup_updates"] = values["warmup_updates"]
            if not any(key.startswith("scheduler.") for key in changed):
                planned, warmup = values.get("max_update"), values["warmup_updates"]
                compare_length(self._config, stored.info, planned, self._max_update, warmup)
            self._compare_updates(values["batches_in_update"])
        self._world.on_main(self._store.prepare)
        reporter = self._reporter()
        trainer = self._trainer(reporter, stored)
        if stored is not None:
            other = self._other_scores(stored.info)
            resets = due_resets(self._config.checkpoint, stored, changed, other_scores=bool(other))
            if other and "reset_meters" not in resets:
                logger.warning(
                    "scores so far are of another validation (%s): what is best may not be; --reset-meters forgets them",
                    "; ".join(f"{key}: {change}" for key, change in other.items()),
                )
            trainer.restore(stored, changed, resets)
            if not trainer.complete:
                self._compare_validations(stored)
            self._world.on_main(lambda: self._store.settle(stored, self._best.update))
        return self._finish(trainer, reporter)

    def _reporter(self) -> Reporter:
        if not self._world.main:
            return Unheard()
        options, total = self._config.report, self._max_update
        return Reporter(self._folder, options, total_updates=total, memory=lambda: peak_memory(self._device))

    def _restored(self) -> StoredCheckpoint | None:
        """What the first process finds to go on from; the others read the same."""
        found: list[StoredCheckpoint | None] = []
        path = self._world.on_main(lambda: _path(found, self._store.restore()))
        if found:
            return found[0]
        return None if path is None else read_checkpoint(path, training=True)

    def _finish(self, trainer: Trainer, reporter: Reporter) -> TrainingResult:
        if trainer.complete:
            ending = trainer.ending()
            logger.info("%s holds a finished run: %s. Raise the limit to train on", self._folder, ending)
            recorded = RunRecord.read(self._folder).last("end").get("update") if self._world.main else None
            if self._world.main and recorded != trainer.state.update:  # a death between checkpoint and log
                reporter.start(trainer.state.update, None, self._cost, skipped=trainer.state.skipped)
                self._record_end(trainer, reporter)
                reporter.close()
        else:
            if trainer.state.update:
                logger.info("going on after update %d of %s", trainer.state.update, self._folder)
            facts = describe_run(self._config, self._datasets, self._step.model, self._device)
            state = trainer.state
            reporter.start(state.update, facts, self._cost, state.seconds, state.skipped)
            try:
                ending = trainer.run()
                self._record_end(trainer, reporter)
            except BaseException as error:
                reporter.stopped(trainer.state.update, trainer.state.epoch, error, **_spent(trainer.state))
                raise
            finally:
                if self._profiler is not None:
                    self._profiler.close()
                reporter.close()
        return TrainingResult(
            folder=self._folder,
            update=trainer.state.update,
            epoch=trainer.state.epoch,
            ending=ending or "",
            metric=self._best.metric,
            best=self._best.value,
            checkpoint=self._store.best() or self._store.last(),
            failures={} if self._translations is None else self._translations.failures,
        )

    def _record_end(self, trainer: Trainer, reporter: Reporter) -> None:
        state = trainer.state
        reporter.end(state.update, state.epoch, ending=trainer.ending() or "", **_spent(state))

    def _trainer(self, reporter: Reporter, stored: StoredCheckpoint | None) -> Trainer:
        config, device = self._config, self._device
        model = build_model(config, self._datasets)
        self._describe(model)
        arithmetic = self._arithmetic(model, stored)
        if stored is None and config.checkpoint.finetune_from_model is not None:
            start_from(config, model, self._datasets.pair)
        step = build_step(config, self._datasets, model, device, self._world)
        place = Place(device, arithmetic.forward_pass, self._world)
        self._step, self._place = step, place
        self._cost = known_cost(config, step, self._datasets.train, place) if self._world.main else None
        save_memory(config, model)
        if config.training.compile:
            graphs = config.training.cuda_graphs
            first = self._batches.at(Position()).batches[0]
            tried = self._batches.batch(first if graphs else first[:2])  # a graph is of one shape: one that will come
            compile_layers(step, tried, arithmetic, config.seed, graphs=graphs)
        self._world.divide(step)
        optimizer = build_optimizer(config, step)
        return Trainer(
            step=step,
            optimizer=optimizer,
            schedule=self._schedule(optimizer, model.width),
            batches=self._batches,
            validators=self._validators(step, place, reporter),
            best=self._best,
            saver=self.saver,
            cadence=Cadence(config.checkpoint),
            reporter=reporter,
            bad_updates=BadUpdates(self._folder, self._datasets.pair),
            stop=self._stop,
            limits=config.training,
            validation=config.validation,
            arithmetic=arithmetic,
            world=self._world,
            seed=config.seed,
            facts=self._facts,
            around_update=self._profiler or contextlib.nullcontext,
        )

    def _arithmetic(self, model: EncoderDecoder, stored: StoredCheckpoint | None) -> Arithmetic:
        before = None if stored is None else Precision[training_state(stored).values["precision"]]
        arithmetic = build_arithmetic(self._config, self._datasets, model, self._device, before)
        automatic = self._config.device.precision is Precision.auto
        logger.info("training on %s%s", arithmetic, " (chosen by --precision auto)" if automatic else "")
        self._facts |= {"precision": arithmetic.precision.name, "computed_on": str(arithmetic)}
        self._facts["validated_as"] = validation_fingerprint(self._config, self._datasets.valid_identities, arithmetic)
        if stored is not None and training_state(stored).values["computed_on"] != str(arithmetic):
            logger.info("the run goes on on %s, after %s", arithmetic, training_state(stored).values["computed_on"])
        return arithmetic

    def _describe(self, model: EncoderDecoder) -> None:
        pair = self._datasets.pair
        logger.info(
            "%s with %s parameters, vocabularies of %d and %d pieces",
            models.name_of(type(self._config.model)),
            f"{sum(parameter.numel() for parameter in model.parameters()):,}",
            len(pair.source.vocabulary),
            len(pair.target.vocabulary),
        )
        logger.info(
            "%s training pairs from %s to %s, %s updates an epoch",
            f"{len(self._datasets.train):,}",
            pair.source_lang,
            pair.target_lang,
            f"{self._batches.updates_in_epoch(1):,}",
        )

    def _other_scores(self, last: CheckpointInfo) -> Mapping[str, str]:
        """What makes the scores so far those of another validation."""
        before, now = last.made.get("validated_as"), self._facts["validated_as"]
        of_translations = ("search.", "validation.") if self._config.validation.best_metric in LOSSES else ()
        changed = differences(before or now, now)
        return {key: changed[key] for key in changed if key != "computed_on" and not key.startswith(of_translations)}

    def _compare_validations(self, last: StoredCheckpoint) -> None:
        """Warn if a run that had ended goes on, and what its last validation decides would have come later."""
        if "final" not in last.info.reasons:
            return
        options, state = self._config.validation, RunState.from_values(training_state(last).values["run"])
        update, ends_epoch = state.update, state.position.batch == 0
        by_updates = options.interval_updates is not None and update % options.interval_updates == 0
        by_epochs = options.interval is not None and ends_epoch and state.epoch % options.interval == 0
        decides = options.patience is not None or getattr(self._config.scheduler, "uses_validation", False)
        if decides and not (by_updates or by_epochs):
            logger.warning(
                "the run had ended at update %d with a validation that a longer run would not have had there: patience and "
                "rates that depend on validations differ from those of a run that had this length from the start",
                update,
            )

    def _compare_updates(self, before: int) -> None:
        """Warn if an update is no longer made of as many batches."""
        now = self._batches.batches_in_update
        if before != now:
            logger.warning(
                "an update was made of %d batches and now is of %d: the order of batches stays, but the course of "
                "training changes; processes x --update-freq should stay the same",
                before,
                now,
            )

    def _schedule(self, optimizer: torch.optim.Optimizer, width: int) -> Schedule:
        config = self._config
        base_rate = float(config.optimizer.base_rate)
        if getattr(config.scheduler, "sets_rate", False):
            for group in optimizer.param_groups:
                group["lr"] /= base_rate
            base_rate = 1.0
        horizon = Horizon(
            self._max_update, width, base_rate, self._facts["warmup_updates"], self._best.higher_is_better
        )
        return schedulers.build(config.scheduler, horizon)

    def _validators(self, step: Step, place: Place, reporter: Reporter) -> list[Validator]:
        datasets = self._datasets
        validators = build_validators(
            self._config, step, place, datasets.pair, datasets.valid, self._scorers, reporter.samples
        )
        self._translations = next((one for one in validators if isinstance(one, TranslationValidator)), None)
        return validators


def _spent(state: RunState) -> dict[str, Any]:
    return {"tokens": state.tokens, "seconds": state.seconds, "skipped": state.skipped}


def _path(found: list[StoredCheckpoint | None], stored: StoredCheckpoint | None) -> Path | None:
    """Keep what was read here, and name it to the others."""
    found.append(stored)
    return None if stored is None else stored.path


def _device(config: TrainConfig) -> torch.device:
    set_threads(config.device.threads)
    device = choose_device(own_device(config.device.name))
    make_current(device)
    require_precision(device, config.device.precision)
    return device

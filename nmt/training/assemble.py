"""From a configuration to a finished run: the one place that knows which part is built from what."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.allocator import keep_freed_memory
from nmt.config.choices import Precision
from nmt.config.plain import to_plain
from nmt.config.sections import Span, TrainConfig
from nmt.devices import choose_device, make_current, own_device, require_precision, set_threads
from nmt.distributed.joining import join
from nmt.distributed.world import World
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.optim import Horizon, default_warmup
from nmt.reporting.cost import Cost
from nmt.reporting.memory import peak_memory
from nmt.reporting.profiling import Profiler
from nmt.reporting.reporter import Reporter, Unheard
from nmt.reporting.run_record import RunRecord
from nmt.scoring import Scorer
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.leftovers import remove_leftovers
from nmt.storage.lock import Lock
from nmt.training.checkpoints import resume
from nmt.training.checkpoints.keeper import Keeper
from nmt.training.checkpoints.resume import Past
from nmt.training.checkpoints.retention import Cadence
from nmt.training.checkpoints.run_state import Facts, Fingerprint, RunState
from nmt.training.checkpoints.saver import Saver
from nmt.training.checkpoints.store import CheckpointStore
from nmt.training.loop.bad_updates import BadUpdates
from nmt.training.loop.batches import Position, TrainingBatches
from nmt.training.loop.learner import Learner
from nmt.training.loop.precision import Arithmetic
from nmt.training.loop.reading import reader
from nmt.training.loop.signals import Pulse, StopRequest
from nmt.training.loop.step import Step
from nmt.training.loop.trainer import Trainer
from nmt.training.loop.updater import Updater
from nmt.training.metrics import build_scorers, higher_is_better
from nmt.training.setup import token_budget
from nmt.training.setup.compilation import compile_layers
from nmt.training.setup.contradictions import Case, check
from nmt.training.setup.cost import known_cost
from nmt.training.setup.datasets import Datasets, open_datasets
from nmt.training.setup.description import describe_run, tell
from nmt.training.setup.fingerprint import fingerprint, validation_fingerprint
from nmt.training.setup.length import compare_length, number_of_updates, tell_limits
from nmt.training.setup.other_models import start_from
from nmt.training.setup.parts import (
    build_arithmetic,
    build_model,
    build_optimizer,
    build_schedule,
    build_step,
    save_memory,
)
from nmt.training.validation.course import BestScore, Validation
from nmt.training.validation.validators import Place, build_validators

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
    device, scorers = _device(config), build_scorers(config.validation)
    with join(config.distributed, device) as world:
        if config.training.cuda_graphs and world.size > 1:
            raise UsageError("training.cuda_graphs=true is for one process; leave --cuda-graphs out")
        datasets = open_datasets(config)
        config = token_budget.decide(config, datasets, device, world)
        batches = TrainingBatches(datasets.train, config.batching, config.seed, world.size)
        max_update = number_of_updates(config, batches, datasets)
        check(Case(config, datasets.longest, max_update))
        tell_limits(config)
        folder = Path(config.checkpoint.save_dir)
        with _holding(folder, world), StopRequest() as stop:
            mark = fingerprint(config, datasets.identities, datasets.valid_identities)
            plan = Plan(config, datasets, batches, max_update, scorers, device, world, folder, mark)
            store = CheckpointStore(
                folder,
                config.checkpoint,
                config=to_plain(config),
                tokenizer=datasets.tokenizer,
                metric=config.validation.best_metric,
                higher_is_better=higher_is_better(config.validation.best_metric, scorers),
            )
            with Saver(store, asynchronous=config.checkpoint.asynchronous) as saver:
                return _train(plan, store, saver, stop)  # the block ends before another process may write


@dataclass(frozen=True)
class Plan:
    """What is known of a run before there is a model."""

    config: TrainConfig
    datasets: Datasets
    batches: TrainingBatches
    max_update: int | None  # None: nobody knows when the limits are reached
    scorers: Mapping[str, Scorer]
    device: torch.device
    world: World
    folder: Path
    fingerprint: Fingerprint

    def reporter(self) -> Reporter:
        if not self.world.main:
            return Unheard()
        options, total = self.config.report, self.max_update
        return Reporter(self.folder, options, total_updates=total, memory=lambda: peak_memory(self.device))

    def profiler(self) -> Profiler | None:
        traced = self.config.report.profile if self.world.main else None
        return Profiler(Span.parse(traced, "report.profile"), self.folder, self.device) if traced else None


def _train(plan: Plan, store: CheckpointStore, saver: Saver, stop: StopRequest) -> TrainingResult:
    config, datasets, world = plan.config, plan.datasets, plan.world
    reporter, profiler = plan.reporter(), plan.profiler()
    past = _past(plan, _restored(world, store))
    world.on_main(store.prepare)
    model = build_model(config, datasets)
    tell(config, datasets, plan.batches, model)
    arithmetic = _arithmetic(plan, model, past)
    if past is None and config.checkpoint.finetune_from_model is not None:
        start_from(config, model, datasets.pair)
    step = build_step(config, datasets, model, plan.device, world)
    place = Place(plan.device, arithmetic.forward_pass, world)
    cost = known_cost(config, step, datasets.train, place) if world.main else None
    _prepare(plan, step, arithmetic)
    learner = Learner(step, build_optimizer(config, step), arithmetic, world)
    facts = _facts(plan, arithmetic, past)
    validation = _validation(plan, learner, place, reporter)
    horizon = Horizon(plan.max_update, model.width, 1.0, facts.warmup_updates, validation.best.higher_is_better)
    trainer = Trainer(
        batches=plan.batches,
        updater=Updater(
            learner,
            build_schedule(config, learner.optimizer, horizon),
            reader(plan.batches.batch, plan.device),
            config.training,
            config.seed,
        ),
        validation=validation,
        keeper=Keeper(learner, saver, Cadence(config.checkpoint), facts),
        reporter=reporter,
        bad_updates=BadUpdates(plan.folder, datasets.pair),
        pulse=Pulse(stop, world),
        limits=config.training,
        around_update=profiler or contextlib.nullcontext,
    )
    if past is not None:
        _go_on(plan, trainer, past, facts)
        world.on_main(lambda: store.mend_pointers(past.stored, validation.best.update))
    if trainer.complete:
        _tell_of_the_end(plan, trainer, reporter, cost)
    else:
        _run(plan, trainer, reporter, profiler, describe_run(config, datasets, model, plan.device), cost)
    return TrainingResult(
        folder=plan.folder,
        update=trainer.state.update,
        epoch=trainer.state.epoch,
        ending=trainer.ending() or "",
        metric=validation.best.metric,
        best=validation.best.value,
        checkpoint=store.best() or store.last(),
        failures=validation.failures,
    )


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


def _restored(world: World, store: CheckpointStore) -> StoredCheckpoint | None:
    """What the first process finds to go on from; the others read the same."""
    found: StoredCheckpoint | None = None

    def find() -> Path | None:
        nonlocal found
        found = store.restore()
        return None if found is None else found.path

    path = world.on_main(find)
    return found if world.main or path is None else read_checkpoint(path, training=True)


def _past(plan: Plan, stored: StoredCheckpoint | None) -> Past | None:
    """What a run goes on from, if the user means that; None for a new one."""
    if stored is None:
        return None
    past = resume.past_of(
        stored,
        plan.fingerprint,
        vocabularies=plan.datasets.pair.digest(),
        batches_in_update=plan.batches.batches_in_update,
        options=plan.config.checkpoint,
    )
    if not past.changes("scheduler."):
        compare_length(plan.config, stored.info, past.facts, plan.max_update)
    resume.compare_updates(past, plan.batches.batches_in_update)
    return past


def _arithmetic(plan: Plan, model: EncoderDecoder, past: Past | None) -> Arithmetic:
    before = None if past is None else Precision[past.facts.precision]
    arithmetic = build_arithmetic(plan.config, plan.datasets, model, plan.device, before)
    automatic = plan.config.device.precision is Precision.auto
    logger.info("training on %s%s", arithmetic, " (chosen by --precision auto)" if automatic else "")
    if past is not None and past.facts.computed_on != str(arithmetic):
        logger.info("the run goes on on %s, after %s", arithmetic, past.facts.computed_on)
    return arithmetic


def _prepare(plan: Plan, step: Step, arithmetic: Arithmetic) -> None:
    """What makes a model smaller or faster while it is trained; afterwards each process has its part of it."""
    save_memory(plan.config, step.model)
    if plan.config.training.compile:
        graphs = plan.config.training.cuda_graphs
        first = plan.batches.at(Position()).batches[0]
        tried = plan.batches.batch(first if graphs else first[:2])  # a graph is of one shape: one that will come
        compile_layers(step, tried, arithmetic, plan.config.seed, graphs=graphs)
    plan.world.divide(step)


def _facts(plan: Plan, arithmetic: Arithmetic, past: Past | None) -> Facts:
    return Facts(
        vocabularies=plan.datasets.pair.digest(),
        fingerprint=plan.fingerprint,
        # derived from the length of the run: it stays, although the run may have become longer
        warmup_updates=default_warmup(plan.max_update) if past is None else past.facts.warmup_updates,
        max_update=plan.max_update,
        batches_in_update=plan.batches.batches_in_update,
        precision=arithmetic.precision.name,
        computed_on=str(arithmetic),
        validated_as=validation_fingerprint(plan.config, plan.datasets.valid_identities, arithmetic),
    )


def _validation(plan: Plan, learner: Learner, place: Place, reporter: Reporter) -> Validation:
    config, datasets = plan.config, plan.datasets
    options = config.validation
    better = higher_is_better(options.best_metric, plan.scorers)
    best = BestScore(options.best_metric, higher_is_better=better, patience=options.patience)
    validators = build_validators(
        config, learner.step, place, datasets.pair, datasets.valid, plan.scorers, reporter.samples
    )
    return Validation(validators, best, options, learner, config.seed)


def _go_on(plan: Plan, trainer: Trainer, past: Past, facts: Facts) -> None:
    config = plan.config
    other = resume.other_scores(past, facts.validated_as, config.validation)
    trainer.restore(past, resume.due_resets(config.checkpoint, past, other))
    if not trainer.complete:
        resume.compare_validations(past, config)


def _run(
    plan: Plan,
    trainer: Trainer,
    reporter: Reporter,
    profiler: Profiler | None,
    made_of: Mapping[str, Any],
    cost: Cost | None,
) -> None:
    state = trainer.state
    if state.update:
        logger.info("going on after update %d of %s", state.update, plan.folder)
    reporter.start(state.update, made_of, cost, state.seconds, state.skipped)
    try:
        trainer.run()
        _record_end(trainer, reporter)
    except BaseException as error:
        reporter.stopped(state.update, state.epoch, error, **_spent(state))
        raise
    finally:
        if profiler is not None:
            profiler.close()
        reporter.close()


def _tell_of_the_end(plan: Plan, trainer: Trainer, reporter: Reporter, cost: Cost | None) -> None:
    """Of a run that was over before; its log too, where a process died between checkpoint and log."""
    logger.info("%s holds a finished run: %s. Raise the limit to train on", plan.folder, trainer.ending())
    if not plan.world.main or RunRecord.read(plan.folder).last("end").get("update") == trainer.state.update:
        return
    reporter.start(trainer.state.update, None, cost, skipped=trainer.state.skipped)
    _record_end(trainer, reporter)
    reporter.close()


def _record_end(trainer: Trainer, reporter: Reporter) -> None:
    state = trainer.state
    reporter.end(state.update, state.epoch, ending=trainer.ending() or "", **_spent(state))


def _spent(state: RunState) -> dict[str, Any]:
    return {"tokens": state.tokens, "seconds": state.seconds, "skipped": state.skipped}


def _device(config: TrainConfig) -> torch.device:
    keep_freed_memory()
    set_threads(config.device.threads)
    device = choose_device(own_device(config.device.name))
    make_current(device)
    require_precision(device, config.device.precision)
    return device

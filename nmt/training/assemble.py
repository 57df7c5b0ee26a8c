"""From a configuration to a finished run: the one place that knows which part is built from what."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from nmt.allocator import keep_few_kernels, keep_freed_memory
from nmt.config.choices import Precision
from nmt.config.plain import to_plain
from nmt.config.sections import Span, TrainConfig
from nmt.devices import choose_device, make_current, own_device, require_precision, set_threads
from nmt.distributed.joining import join
from nmt.distributed.world import World
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.optim import Horizon, default_warmup
from nmt.reporting.reporter import Reporter, Unheard
from nmt.reporting.resources import Profiler, peak_memory
from nmt.reporting.run_record import Cost, RunRecord
from nmt.scoring import Scorer
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.lock import one_writer, remove_leftovers
from nmt.training.checkpoints import resume
from nmt.training.checkpoints.keeper import Keeper, Saver
from nmt.training.checkpoints.optimizer_state import training_mode
from nmt.training.checkpoints.resume import Facts, Past
from nmt.training.checkpoints.store import Cadence, CheckpointStore
from nmt.training.loop.batches import DataPosition, TrainingBatches, batch_reader
from nmt.training.loop.learner import Arithmetic, Learner, Step
from nmt.training.loop.trainer import Pulse, StopRequest, Trainer
from nmt.training.loop.updater import BadUpdates, Updater
from nmt.training.setup import parts
from nmt.training.setup.compilation import compile_layers
from nmt.training.setup.datasets import Datasets, open_datasets, readable, stages_of
from nmt.training.setup.description import (
    describe_model,
    describe_run,
    number_of_updates,
    tell,
    tell_limits,
    tell_update,
    update_in_words,
)
from nmt.training.setup.options import (
    Fingerprint,
    build_scorers,
    check,
    fingerprint,
    higher_is_better,
    validation_fingerprint,
)
from nmt.training.setup.rehearsal import described, rehearse
from nmt.training.setup.trials import decide_token_budget, known_cost
from nmt.training.validation import BestScore, Validation, build_validators

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
    if config.dry_run:
        raise UsageError("dry_run=true trains nothing; call nmt.training.assemble.dry_run, or leave it out")
    with _planned(config) as plan, _holding(plan.folder, plan.world), StopRequest() as stop:
        config, metric = plan.config, plan.config.validation.best_metric
        better = higher_is_better(metric, plan.scorers)
        store = CheckpointStore(
            plan.folder, config.checkpoint, to_plain(config), plan.datasets.tokenizer, metric, better
        )
        with Saver(store, asynchronous=config.checkpoint.asynchronous) as saver:
            return _train(plan, store, saver, stop)  # the block ends before another process may write


def dry_run(config: TrainConfig) -> dict[str, str]:
    """What batches, memory and time a new run would take, in words, from the first process; nothing is written."""
    uncounted = replace(config, report=replace(config.report, count_flops=False))  # nobody would see the count
    with _planned(uncounted) as plan:
        learner, _ = _learner(plan, None)
        updater = _updater(plan, learner, default_warmup(plan.max_update))
        training_mode(learner.optimizer)
        copies = config.checkpoint.asynchronous and plan.world.main and plan.device.type == "cpu"
        found = rehearse(updater, plan.batches, copies_checkpoints=copies)
        if not plan.world.main:
            return {}
        facts = describe_model(learner.step.model, models.name_of(type(config.model)))
        parts = ", ".join(f"{name} {count:,}" for name, count in facts["parts"].items())
        pair, pairs = plan.datasets.pair, len(plan.datasets.train)
        given = plan.config.batching.tokens_per_update
        return described(
            found,
            model=f"{facts['name']}, {facts['parameters']:,} parameters ({parts})",
            data=f"{pairs:,} pairs from {pair.source_lang} to {pair.target_lang}",
            limits=plan.config.training,
            max_update=plan.max_update,
            made_of=None if given is None else update_in_words(plan.config.batching, plan.world.size),
        )


@contextlib.contextmanager
def _planned(config: TrainConfig) -> Iterator[Plan]:
    """What is known of a run before there is a model, among the processes that share it."""
    if not config.data or config.seed < 0 or config.criterion is None:
        check(config, longest=None, max_update=config.training.last_update)
    keep_freed_memory()
    keep_few_kernels()
    set_threads(config.device.threads)
    device = choose_device(own_device(config.device.name))
    make_current(device)
    require_precision(device, config.device.precision)
    scorers = build_scorers(config.validation)  # whatever all these refuse is said before anything is opened
    with join(config.distributed, device) as world:
        if config.training.cuda_graphs and world.size > 1:
            raise UsageError("training.cuda_graphs=true is for one process; leave --cuda-graphs out")
        datasets = open_datasets(config)
        stages = stages_of(config, datasets)
        config = decide_token_budget(config, datasets, device, world)
        readers = 2 * (device.type == "cuda") if config.variation.readers is None else config.variation.readers
        batches = TrainingBatches(
            datasets.train, config.batching, config.seed, world.size, stages, datasets.variation, readers
        )
        with batches.readers:  # copies of this process: made now, they hold neither the run folder nor a model
            max_update = number_of_updates(config, batches, datasets)
            check(config, datasets.longest, max_update)
            tell_limits(config)
            tell_update(config.batching, world.size)
            mark = fingerprint(config, datasets.identities, datasets.valid_identities)
            folder = Path(config.checkpoint.save_dir)
            yield Plan(config, datasets, batches, max_update, scorers, device, world, folder, mark)


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


def _train(plan: Plan, store: CheckpointStore, saver: Saver, stop: StopRequest) -> TrainingResult:
    config, datasets, world = plan.config, plan.datasets, plan.world
    reporter, profiler = _watching(plan)
    past = _past(plan, store)
    world.on_main(store.prepare)
    learner, cost = _learner(plan, past)
    facts = _facts(plan, learner.arithmetic, past)
    validation = _validation(plan, learner, reporter)
    trainer = Trainer(
        batches=plan.batches,
        updater=_updater(plan, learner, facts.warmup_updates),
        validation=validation,
        keeper=Keeper(learner, saver, Cadence(config.checkpoint), facts),
        reporter=reporter,
        bad_updates=BadUpdates(plan.folder, datasets.pair),
        pulse=Pulse(stop, world),
        limits=config.training,
        around_update=profiler or contextlib.nullcontext,
    )
    if past is not None:
        other = resume.other_scores(past, facts.validated_as, config.validation)
        trainer.restore(past, resume.due_resets(config.checkpoint, past, other))
        if not trainer.complete:
            resume.compare_validations(past, config)
        world.on_main(lambda: store.mend_pointers(past.stored, validation.best.update))
    _run(plan, trainer, profiler, cost)
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


def _learner(plan: Plan, past: Past | None) -> tuple[Learner, Cost | None]:
    """What is trained, and what that costs: the first process says it."""
    config, datasets, device, world = plan.config, plan.datasets, plan.device, plan.world
    model = parts.build_model(config, datasets)
    plan.batches.limits = readable(model)
    tell(config, datasets, plan.batches, model)
    arithmetic = _arithmetic(plan, model, past)
    if past is None and config.checkpoint.finetune_from_model is not None:
        parts.start_from(config, model, datasets.pair)
    step = parts.build_step(config, datasets, model, device, world)
    cost = known_cost(config, step, datasets.train, arithmetic, world.size) if world.main else None
    _prepare(plan, step, arithmetic)
    return Learner(step, parts.build_optimizer(config, step), arithmetic, world), cost


def _updater(plan: Plan, learner: Learner, warmup_updates: int) -> Updater:
    config = plan.config
    better = higher_is_better(config.validation.best_metric, plan.scorers)
    horizon = Horizon(plan.max_update, learner.step.model.width, 1.0, warmup_updates, better)
    schedule = parts.build_schedule(config, learner.optimizer, horizon)
    reader = batch_reader(plan.batches.batch, plan.device, plan.batches.readers)
    return Updater(learner, schedule, reader, config.training, config.seed)


@contextlib.contextmanager
def _holding(folder: Path, world: World) -> Iterator[None]:
    """The run folder belongs to this run alone, and what an interrupted process left in it is gone."""
    with contextlib.ExitStack() as held:

        def take() -> None:
            held.enter_context(one_writer(folder))
            for name in remove_leftovers(folder):
                logger.info("removed %s, which an interrupted process left", name)

        world.on_main(take)
        yield


def _watching(plan: Plan) -> tuple[Reporter, Profiler | None]:
    """What shows and records the run: the first process's."""
    if not plan.world.main:
        return Unheard(), None
    options, total, traced = plan.config.report, plan.max_update, plan.config.report.profile
    reporter = Reporter(plan.folder, options, total_updates=total, memory=lambda: peak_memory(plan.device))
    return reporter, Profiler(Span.parse(traced, "report.profile"), plan.folder, plan.device) if traced else None


def _past(plan: Plan, store: CheckpointStore) -> Past | None:
    """What a run goes on from, if the user means that; None for a new one. The first process finds it for all."""
    stored: StoredCheckpoint | None = None

    def find() -> Path | None:
        nonlocal stored
        stored = store.restore()
        return None if stored is None else stored.path

    path = plan.world.on_main(find)
    if path is None:
        return None
    past = resume.past_of(
        stored or read_checkpoint(path, training=True),
        plan.fingerprint,
        vocabularies=plan.datasets.pair.digest(),
        batches_in_update=plan.batches.batches_in_update,
        options=plan.config.checkpoint,
    )
    checkpoint = {**store.config["checkpoint"], "finetune_from_model": resume.origin(plan.config.checkpoint, past)}
    store.config = {**store.config, "checkpoint": checkpoint}
    if not past.changes("scheduler."):
        resume.compare_length(past, plan.config, plan.max_update)
    return past


def _arithmetic(plan: Plan, model: EncoderDecoder, past: Past | None) -> Arithmetic:
    before = None if past is None else Precision[past.facts.precision]
    arithmetic = parts.build_arithmetic(plan.config, plan.datasets, model, plan.device, before)
    automatic = plan.config.device.precision is Precision.auto
    logger.info("training on %s%s", arithmetic, " (chosen by --precision auto)" if automatic else "")
    if past is not None and past.facts.computed_on != str(arithmetic):
        logger.info("the run goes on on %s, after %s", arithmetic, past.facts.computed_on)
    return arithmetic


def _prepare(plan: Plan, step: Step, arithmetic: Arithmetic) -> None:
    """What makes a model smaller or faster while it is trained; afterwards each process has its part of it."""
    parts.save_memory(plan.config, step.model)
    if plan.config.training.compile:
        graphs = plan.config.training.cuda_graphs
        first = plan.batches.at(DataPosition()).batches[0]
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
        validated_as=validation_fingerprint(plan.config, plan.datasets.valid_identities, str(arithmetic)),
    )


def _validation(plan: Plan, learner: Learner, reporter: Reporter) -> Validation:
    config, datasets = plan.config, plan.datasets
    options = config.validation
    better = higher_is_better(options.best_metric, plan.scorers)
    best = BestScore(options.best_metric, higher_is_better=better, patience=options.patience)
    step, arithmetic, world = learner.step, learner.arithmetic, learner.world
    validators = build_validators(
        config, step, arithmetic, world, datasets.pair, datasets.valid, plan.scorers, reporter.samples
    )
    return Validation(validators, best, options, learner, config.seed)


def _run(plan: Plan, trainer: Trainer, profiler: Profiler | None, cost: Cost | None) -> None:
    state, reporter = trainer.state, trainer.reporter
    if trainer.complete:
        logger.info("%s holds a finished run: %s. Raise the limit to train on", plan.folder, trainer.ending())
        # its log may not be, where a process died between checkpoint and log
        if plan.world.main and RunRecord.read(plan.folder).last("end").get("update") != state.update:
            reporter.start(state.update, None, cost, skipped=state.skipped)
            reporter.end(ending=trainer.ending() or "", **state.spent())
            reporter.close()
        return
    if state.update:
        logger.info("going on after update %d of %s", state.update, plan.folder)
    made_of = describe_run(plan.config, plan.datasets, trainer.updater.learner.step.model, plan.device)
    reporter.start(state.update, made_of, cost, state.seconds, state.skipped)
    try:
        ending = trainer.run()
        reporter.end(ending=ending, **state.spent())
    except BaseException as error:
        reporter.stopped(error, **state.spent())
        raise
    finally:
        if profiler is not None:
            profiler.close()
        reporter.close()

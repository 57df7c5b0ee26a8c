"""From a configuration to a finished run: the one place that knows which part is built from what."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from nmt.allocator import keep_few_kernels, keep_freed_memory
from nmt.config.choices import Compilation
from nmt.config.plain import to_plain
from nmt.config.reporting import Span
from nmt.config.sections import TrainConfig
from nmt.data.corpus.frequencies import unigram_entropy
from nmt.devices import choose_device, own_device, require_precision
from nmt.devices.faults import avoided
from nmt.devices.kinds import device_of
from nmt.distributed.joining import join
from nmt.distributed.world import World
from nmt.keywords import configured
from nmt.models import models
from nmt.optim import Horizon, default_warmup
from nmt.progress import watched
from nmt.reporting.callbacks import Callback, Callbacks, checked
from nmt.reporting.reporter import FirstUpdate, Reporter, SilentReporter
from nmt.reporting.resources import Profiler, peak_memory
from nmt.reporting.run_record import Cost, RunRecord
from nmt.reporting.sinks import require_sinks
from nmt.scoring import Scorer
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.run_status import recorded
from nmt.threads import set_threads
from nmt.training.checkpoints import resume
from nmt.training.checkpoints.fingerprint import Fingerprint, default_options, fingerprint, validation_fingerprint
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.checkpoints.run_lock import RunLock
from nmt.training.checkpoints.run_state import DataPosition, RunSettings
from nmt.training.checkpoints.store import CheckpointStore, fallback_folder
from nmt.training.checkpoints.writer import CheckpointWriter
from nmt.training.loop.batches import TrainingBatches, batch_reader, readers_of
from nmt.training.loop.compilation import compile_step
from nmt.training.loop.divergence import LearningWatch, References
from nmt.training.loop.learner import Arithmetic, Learner, Step
from nmt.training.loop.optimizer_state import training_mode
from nmt.training.loop.trainer import StopRequest, Trainer
from nmt.training.loop.updater import BadUpdates, Updater
from nmt.training.loop.validation import BestScore, Validation, build_validators
from nmt.training.result import TrainingResult
from nmt.training.setup import announcements, parts
from nmt.training.setup.contradictions import check
from nmt.training.setup.datasets import Datasets, number_of_updates, open_datasets, readable, stages_of
from nmt.training.setup.description import describe_model, describe_run
from nmt.training.setup.disk import expected_checkpoint, require_disk
from nmt.training.setup.embeddings_from_files import fill_embeddings
from nmt.training.setup.forecast import EpochSizes, Forecast, forecast_by_largest, try_forecast
from nmt.training.setup.metrics import build_scorers, higher_is_better
from nmt.training.setup.operations import known_cost
from nmt.training.setup.token_budget import decide_token_budget

logger = logging.getLogger("nmt.training")


@dataclass(frozen=True)
class RunSetup:
    """What is known of a run before there is a model."""

    config: TrainConfig
    datasets: Datasets
    batches: TrainingBatches
    max_update: int | None  # None: unknown when the limits are reached
    scorers: Mapping[str, Scorer]
    higher_is_better: bool  # of the metric that decides which checkpoint is best
    device: torch.device
    world: World
    folder: Path
    fingerprint: Fingerprint


def train(
    config: TrainConfig | None = None, callbacks: Sequence[Callback | str] = (), **options: Any
) -> TrainingResult:
    """Train by ``config``, or by options of nmt-train as keywords. The same call resumes an interrupted run."""
    config = configured(TrainConfig, config, options, "train")
    accepted = checked([*callbacks, *config.report.callbacks])
    recording = recorded(Path(config.checkpoint.save_dir))
    with recording, _set_up(config) as setup, RunLock(setup.folder, setup.world) as lock, StopRequest() as stop:
        config, metric = setup.config, setup.config.validation.best_metric
        tokenizer, languages = setup.datasets.tokenizer, setup.datasets.pair.languages
        stored = config.checkpoint, to_plain(config), tokenizer, metric, setup.higher_is_better
        fallback = fallback_folder(config.checkpoint)
        second = None if fallback is None else CheckpointStore(fallback, *stored, None, languages)
        store = CheckpointStore(setup.folder, *stored, second, languages)
        with CheckpointWriter(store, asynchronous=config.checkpoint.asynchronous) as checkpoints:
            return _train(setup, lock, checkpoints, stop, accepted)  # the block ends before another process may write


def dry_run(config: TrainConfig) -> dict[str, str]:
    """Return the batches, memory and time of a new run, in words; empty on ranks but 0. Nothing is written."""
    with _set_up(config) as setup:
        learner, epoch, forecast = _try_largest(setup)
        if not setup.world.main:
            return {}
        model = describe_model(learner.step.model, models.name_of(type(config.model)))
        sizes = ", ".join(f"{name} {count:,}" for name, count in model["parts"].items())
        batching = setup.config.batching
        return announcements.dry_run_in_words(
            epoch,
            forecast,
            model=f"{model['name']}, {model['parameters']:,} parameters ({sizes})",
            data=announcements.pairs_in_words(setup.datasets, "pair"),
            limits=setup.config.training,
            max_update=setup.max_update,
            made_of=None
            if batching.tokens_per_update is None
            else announcements.update_in_words(batching, setup.world.size),
        )


def try_largest(config: TrainConfig) -> Forecast:
    """Return the memory and time of the largest batches of a new run. Nothing is written."""
    with _set_up(config) as setup:
        return _try_largest(setup)[-1]


def _try_largest(setup: RunSetup) -> tuple[Learner, EpochSizes, Forecast]:
    learner = _learner(setup, *_step(setup, None))
    updater = _updater(setup, learner, _horizon(setup, learner, default_warmup(setup.max_update)))
    training_mode(learner.optimizer)
    copies = setup.config.checkpoint.asynchronous and setup.world.main and setup.device.type == "cpu"
    epoch = EpochSizes.first(setup.batches)
    return learner, epoch, forecast_by_largest(updater, setup.batches, epoch, copies_checkpoints=copies)


@contextlib.contextmanager
def _set_up(config: TrainConfig) -> Iterator[RunSetup]:
    """Join the ranks, open the data and check the options."""
    if not config.data or config.seed < 0 or config.criterion is None:
        check(config, longest=None, max_update=config.training.last_update)
    keep_freed_memory()
    keep_few_kernels()
    set_threads(config.device.threads)
    device = choose_device(own_device(config.device.name))
    require_precision(device, config.device.precision)
    if config.training.expandable_segments and not device_of(device).grow_segments():
        logger.warning("training.expandable_segments=true has no effect on %s, only on NVIDIA and AMD GPUs", device)
    scorers = build_scorers(config.validation)  # refused here, before any corpus is opened
    better = higher_is_better(config.validation.best_metric, scorers)
    with join(config.distributed, device) as world:
        world.on_main(lambda: require_sinks(config.report))
        datasets = open_datasets(config)
        stages = stages_of(config, datasets)
        count = 2 * (device.type != "cpu") if config.variation.readers is None else config.variation.readers
        with readers_of(datasets.variation, count) as readers:  # copies of this process: it has no model or folder yet
            config = decide_token_budget(config, datasets, device, world)
            batches = TrainingBatches(
                datasets.train, config.batching, config.seed, world.size, stages, datasets.variation, readers
            )
            max_update = number_of_updates(config, batches, datasets)
            check(config, datasets.longest, max_update)
            announcements.tell_limits(config)
            announcements.tell_update(config.batching, world.size)
            mark = fingerprint(config, datasets.identities, datasets.valid_identities)
            folder = Path(config.checkpoint.save_dir)
            yield RunSetup(config, datasets, batches, max_update, scorers, better, device, world, folder, mark)


def _train(
    setup: RunSetup, lock: RunLock, checkpoints: CheckpointWriter, stop: StopRequest, callbacks: Sequence[Any]
) -> TrainingResult:
    store = checkpoints.store
    setup, point = _resumed(setup, store)
    config, world = setup.config, setup.world
    reporter, profiler = _reporter_and_profiler(setup, callbacks)
    made = 0 if point is None else point.state.update
    updates_left = None if setup.max_update is None else setup.max_update - made
    step, arithmetic = _step(setup, point)
    cost, forecast = None, None
    if world.main:
        train_split = setup.datasets.train
        cost = known_cost(config, step, train_split, arithmetic, world.size)
        forecast = try_forecast(config, step, setup.batches, train_split, arithmetic, world, updates_left)
    learner = _learner(setup, step, arithmetic)
    world.on_main(lambda: _tell_and_check(setup, learner, forecast, updates_left, is_new=point is None))
    lock.create()
    world.on_main(store.prepare)
    settings = _settings(setup, learner.arithmetic, point)
    horizon = _horizon(setup, learner, settings.warmup_updates)
    validation = _validation(setup, learner, reporter)
    trainer = Trainer(
        batches=setup.batches,
        updater=_updater(setup, learner, horizon),
        validation=validation,
        checkpoints=checkpoints,
        settings=settings,
        reporter=reporter,
        bad_updates=BadUpdates(setup.folder, setup.datasets.pair),
        stop=stop,
        limits=config.training,
        around_update=FirstUpdate(profiler or contextlib.nullcontext, config.report.progress if world.main else None),
        watch=_watch(setup, horizon),
    )
    if point is not None:
        other = resume.other_scores(point, settings.validated_as, config.validation)
        trainer.restore(point, resume.due_resets(config.checkpoint, point, other))
        if not trainer.complete:
            resume.compare_validations(point, config)
        world.on_main(lambda: store.mend_pointers(point.stored, validation.best.update))
    _run(setup, trainer, profiler, cost, point)
    return TrainingResult(
        folder=setup.folder,
        update=trainer.state.update,
        epoch=trainer.state.epoch,
        ending=trainer.ending() or "",
        metric=validation.best.metric,
        best=validation.best.value,
        checkpoint=store.best() or store.last(),
        failures=validation.failures,
    )


def _resumed(setup: RunSetup, store: CheckpointStore) -> tuple[RunSetup, ResumePoint | None]:
    """Return the setup with the update rule that the run began with, and the checkpoint to resume from (None: a new run).
    Rank 0 chooses the checkpoint for all ranks."""
    stored: StoredCheckpoint | None = None

    def find() -> Path | None:
        nonlocal stored
        stored = store.restore()
        return None if stored is None else stored.path

    path = setup.world.on_main(find)
    if path is None:
        return setup, None
    stored = stored or read_checkpoint(path, training=True)
    config, datasets = resume.with_first_update_rule(setup.config, stored), setup.datasets
    mark = fingerprint(config, datasets.identities, datasets.valid_identities)
    setup = replace(setup, config=config, fingerprint=mark)
    point = resume.resume_point(
        stored,
        mark,
        defaults=default_options(config),
        vocabularies=datasets.pair.digest(),
        batches_in_update=setup.batches.batches_in_update,
        options=config.checkpoint,
    )
    checkpoint = {**store.config["checkpoint"], "finetune_from_model": resume.origin(config.checkpoint, point)}
    for each in filter(None, (store, store.fallback)):
        each.config = {**store.config, "optimizer": to_plain(config.optimizer), "checkpoint": checkpoint}
    if not point.changes("scheduler."):
        resume.compare_length(point, config, setup.max_update)
    return replace(setup, config=resume.with_base(config, point)), point


def _step(setup: RunSetup, point: ResumePoint | None) -> tuple[Step, Arithmetic]:
    """Build the model and the criterion."""
    config, datasets, device, world = setup.config, setup.datasets, setup.device, setup.world
    model = parts.new_model(config, datasets)
    parts.check_ignored(model, resumes=point is not None)
    setup.batches.limits = readable(model)
    announcements.tell_sizes(config, datasets, setup.batches, model)
    settings = None if point is None else point.settings
    arithmetic = parts.decide_arithmetic(config, datasets, model, device, world, settings)
    is_adapted = config.parameters.lora_rank is not None  # checkpoints hold only the adapters
    if config.checkpoint.finetune_from_model is not None and (point is None or is_adapted):
        parts.start_from(config, model, datasets.pair)
    step = parts.build_step(config, datasets, model, device, world)
    fill_embeddings(config, model, datasets.pair, is_new=point is None)
    return step, arithmetic


def _learner(setup: RunSetup, step: Step, arithmetic: Arithmetic) -> Learner:
    """Return the learner; layers are compiled and parameters divided among ranks."""
    parts.save_memory(setup.config, step.model)
    if (what := setup.config.training.compile) is not Compilation.none:
        trial = setup.batches.batch(setup.batches.at(DataPosition()).batches[0][:2])
        compile_step(step, what, trial, arithmetic, setup.config.seed)
    setup.world.divide(step)
    return Learner(step, parts.build_optimizer(setup.config, step), arithmetic, setup.world)


def _tell_and_check(
    setup: RunSetup, learner: Learner, forecast: Forecast | None, updates_left: int | None, *, is_new: bool
) -> None:
    """Log the forecast. Refuse a new run without room on the disk; its folder does not exist yet."""
    if forecast is not None:
        announcements.tell_forecast(setup.config, forecast, updates_left, setup.device)
    if is_new:
        folders = filter(None, (setup.folder, fallback_folder(setup.config.checkpoint)))
        checkpoint = forecast.checkpoint if forecast else expected_checkpoint(setup.config, learner.step)
        require_disk(list(folders), checkpoint)


def _settings(setup: RunSetup, arithmetic: Arithmetic, point: ResumePoint | None) -> RunSettings:
    return RunSettings(
        base=parts.base_of_adapters(setup.config),
        vocabularies=setup.datasets.pair.digest(),
        fingerprint=setup.fingerprint,
        # derived from the length of the run; it stays, although the run may have become longer
        warmup_updates=default_warmup(setup.max_update) if point is None else point.settings.warmup_updates,
        max_update=setup.max_update,
        batches_in_update=setup.batches.batches_in_update,
        precision=arithmetic.precision.name,
        computed_on=str(arithmetic),
        avoided=sorted(path.name for path in avoided(arithmetic.device)),
        validated_as=validation_fingerprint(setup.config, setup.datasets.valid_identities, str(arithmetic)),
    )


def _horizon(setup: RunSetup, learner: Learner, warmup_updates: int) -> Horizon:
    """Return what is known of the run, without the optimizer's rate, which ``build_schedule`` fills in."""
    width, better = learner.step.model.width, setup.higher_is_better
    return Horizon(setup.max_update, width, warmup_updates=warmup_updates, higher_is_better=better)


def _updater(setup: RunSetup, learner: Learner, horizon: Horizon) -> Updater:
    config = setup.config
    schedule = parts.build_schedule(config, learner.optimizer, horizon)
    readers = setup.batches.readers if setup.batches.readers.count else None
    reader = batch_reader(setup.batches.batch, setup.device, readers)
    return Updater(learner, schedule, reader, config.training, config.seed)


def _reporter_and_profiler(setup: RunSetup, callbacks: Sequence[Any]) -> tuple[Reporter, Profiler | None]:
    """Return what shows and records the run; only on rank 0 do they have an effect. ``callbacks``: as ``checked``."""
    if not setup.world.main:
        return SilentReporter(), None
    options, total, traced = setup.config.report, setup.max_update, setup.config.report.profile
    reporter = Reporter(
        setup.folder,
        options,
        total_updates=total,
        memory=lambda: peak_memory(setup.device),
        callbacks=Callbacks(callbacks),
    )
    return reporter, Profiler(Span.parse(traced, "report.profile"), setup.folder, setup.device) if traced else None


def _watch(setup: RunSetup, horizon: Horizon) -> LearningWatch:
    config, targets = setup.config, setup.datasets.train.targets
    assert targets is not None, "datasets without targets are refused"
    vocabulary, warmup = len(setup.datasets.pair.target.vocabulary), config.scheduler.warmup_of_run(horizon)
    references = References(vocabulary, math.log(vocabulary), unigram_entropy(targets))
    return LearningWatch(references, warmup, config.training.divergence_patience)


def _validation(setup: RunSetup, learner: Learner, reporter: Reporter) -> Validation:
    config, datasets = setup.config, setup.datasets
    options = config.validation
    best = BestScore(options.best_metric, higher_is_better=setup.higher_is_better, patience=options.patience)
    step, arithmetic, world = learner.step, learner.arithmetic, learner.world
    watch = watched(config.report.progress)
    validators = build_validators(
        config, step, arithmetic, world, datasets.pair, datasets.validated, setup.scorers, reporter.samples, watch
    )
    return Validation(validators, best, options, learner, config.seed)


def _run(
    setup: RunSetup, trainer: Trainer, profiler: Profiler | None, cost: Cost | None, point: ResumePoint | None
) -> None:
    state, reporter = trainer.state, trainer.reporter

    def begin() -> None:
        facts = describe_run(setup.config, setup.datasets, trainer.learner.step.model, setup.device, setup.scorers)
        reporter.start(state.update, facts, cost, state.seconds, state.skipped, state.epoch)

    if trainer.complete:
        logger.info("%s holds a finished run: %s; raise the limit to train longer", setup.folder, trainer.ending())
        # its log may not have ended, if a process died between checkpoint and log
        if setup.world.main and RunRecord.read(setup.folder).last("end").get("update") != state.update:
            begin()
            reporter.end(ending=trainer.ending() or "", **state.totals())
            reporter.close()
        trainer.require_callbacks()
        trainer.require_learned()
        return
    if point is not None:
        batch = f"micro-batch {state.position.batch + 1} of epoch {state.position.epoch}"
        logger.info(f"resumed after update {state.update} of {setup.folder}, from {point.stored.path}: next is {batch}")
    begin()
    try:
        ending = trainer.run()
        reporter.end(ending=ending, **state.totals())
        trainer.require_callbacks()
    except BaseException as error:
        reporter.stopped(error, **state.totals())
        raise
    finally:
        if profiler is not None:
            profiler.close()
        reporter.close()

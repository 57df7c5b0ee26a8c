"""From a configuration to a finished run: the one place that knows which part is built from what."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.devices import choose_device
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.optim import Horizon, Progress, Schedule, default_warmup, optimizers, schedulers
from nmt.optim.parameter_groups import freeze, parameter_groups
from nmt.scoring import Scorer, TextOptions, scorers
from nmt.search import searches
from nmt.storage.checkpoints import CheckpointInfo
from nmt.storage.files import Lock, remove_leftovers
from nmt.training.batches import TrainingBatches
from nmt.training.contradictions import Case, check
from nmt.training.criterion_parts import build_criterion
from nmt.training.datasets import Datasets, check_lengths, number_of_updates, open_datasets
from nmt.training.fingerprint import fingerprint
from nmt.training.other_models import start_from
from nmt.training.precision import autocast
from nmt.training.report import Reporter
from nmt.training.resume import check_unchanged, training_state
from nmt.training.retention import Cadence
from nmt.training.signals import StopRequest
from nmt.training.step import Step, seed_torch
from nmt.training.stopping import BestScore
from nmt.training.store import CheckpointStore
from nmt.training.trainer import Trainer
from nmt.training.validation import LossValidator, Place, TranslationValidator, Validator

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
        check(Case(config, longest=None, max_update=config.training.max_update))
    device, built = _device(config), _scorers(config)  # whatever they refuse is said before anything is opened
    datasets = open_datasets(config)
    batches = TrainingBatches(datasets.train, config.batching, config.seed)
    max_update = number_of_updates(config, batches, datasets.longest)
    check(Case(config, datasets.longest, max_update))
    folder = Path(config.checkpoint.save_dir)
    with Lock(folder), StopRequest() as stop:
        for name in remove_leftovers(folder):
            logger.info("removed %s, which an interrupted process left", name)
        return _Run(config, datasets, batches, max_update, stop, device, built).to_the_end()


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
    ) -> None:
        self._config = config
        self._datasets = datasets
        self._batches = batches
        self._max_update = max_update
        self._stop = stop
        self._device = device
        self._folder = Path(config.checkpoint.save_dir)
        self._scorers = built
        self._translations: TranslationValidator | None = None
        self._best = BestScore(
            config.validation.best_metric,
            higher_is_better=_higher_is_better(config, self._scorers),
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
        self._facts: dict[str, Any] = {
            "vocabularies": datasets.pair.digest(),
            "fingerprint": fingerprint(config, datasets.identities),
            "warmup_updates": default_warmup(max_update),
            "max_update": max_update,
        }

    def to_the_end(self) -> TrainingResult:
        device = self._device
        self._facts["computed_on"] = f"{device.type} in {self._config.device.precision.name}"
        stored = self._store.restore()
        changed: Mapping[str, str] = {}
        if stored is not None:
            changed = check_unchanged(
                stored,
                self._facts["fingerprint"],
                vocabularies=self._facts["vocabularies"],
                reset=self._config.checkpoint.reset,
            )
            values = training_state(stored).values
            if values["computed_on"] != self._facts["computed_on"]:
                logger.info("the run goes on on %s, after %s", self._facts["computed_on"], values["computed_on"])
            # what was derived from the length of the run stays, although the run may have become longer
            self._facts["warmup_updates"] = values["warmup_updates"]
            self._compare_rates(stored.info, values.get("max_update"))
        self._store.prepare()
        reporter = Reporter(self._folder, self._config.report, total_updates=self._max_update)
        trainer = self._trainer(device, reporter, fresh=stored is None)
        if stored is not None:
            trainer.restore(stored, changed)
        return self._finish(trainer, reporter)

    def _finish(self, trainer: Trainer, reporter: Reporter) -> TrainingResult:
        if trainer.complete:
            ending = trainer.ending()
            logger.info("%s holds a finished run: %s. Raise the limit to train on", self._folder, ending)
        else:
            if trainer.state.update:
                logger.info("going on after update %d of %s", trainer.state.update, self._folder)
            reporter.start(trainer.state.update)
            try:
                ending = trainer.run()
            finally:
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

    def _trainer(self, device: torch.device, reporter: Reporter, *, fresh: bool) -> Trainer:
        config = self._config
        model = self._model()
        if fresh and config.checkpoint.finetune_from_model is not None:
            start_from(config, model, self._datasets.pair)
        criterion = build_criterion(config, self._datasets, device)
        step = Step(model, criterion).to(device)
        place = Place(device, lambda: autocast(device, config.device.precision))
        freeze(step, config.parameters.freeze)
        optimizer = optimizers.build(config.optimizer, parameter_groups(step, config.parameters, config.optimizer))
        return Trainer(
            step=step,
            optimizer=optimizer,
            schedule=self._schedule(optimizer, model.width),
            batches=self._batches,
            validators=self._validators(step, place),
            best=self._best,
            store=self._store,
            cadence=Cadence(config.checkpoint),
            reporter=reporter,
            stop=self._stop,
            limits=config.training,
            validation=config.validation,
            device=device,
            autocast=place.autocast,
            seed=config.seed,
            facts=self._facts,
        )

    def _model(self) -> EncoderDecoder:
        pair = self._datasets.pair
        sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
        seed_torch(self._config.seed)
        model = models.build(self._config.model, sizes)
        check_lengths(model, self._datasets, self._config.batching)
        count = sum(parameter.numel() for parameter in model.parameters())
        logger.info(
            "%s with %s parameters, vocabularies of %d and %d pieces",
            models.name_of(type(self._config.model)),
            f"{count:,}",
            sizes.source,
            sizes.target,
        )
        logger.info(
            "%s training pairs from %s to %s, %s updates an epoch",
            f"{len(self._datasets.train):,}",
            pair.source_lang,
            pair.target_lang,
            f"{self._batches.updates_in_epoch(1):,}",
        )
        return model

    def _compare_rates(self, last: CheckpointInfo, planned: int | None) -> None:
        """Warn if the run has become longer or shorter and rates that lie behind would have been others."""
        if planned is None or planned == self._max_update:
            return
        rate = float(self._config.optimizer.base_rate)
        before, now = (
            schedulers.build(self._config.scheduler, Horizon(length, 1, rate, self._facts["warmup_updates"]))
            for length in (planned, self._max_update)
        )
        made = Progress(last.update, last.epoch, tokens=0)  # schedules that agree on it agree on all before
        if before(made) != now(made):
            logger.warning(
                "the run was planned with %d updates and now has %s: its learning rates follow the new length, "
                "and differ from those of a run that had this length from the start",
                planned,
                self._max_update,
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

    def _validators(self, step: Step, place: Place) -> list[Validator]:
        config, split = self._config, self._datasets.valid
        if split is None:
            return []
        validators: list[Validator] = [LossValidator(step, split, config.batching, place)]
        options = config.validation
        sentences = options.max_sentences if options.max_sentences is not None else len(split)
        if not self._scorers:
            sentences = min(sentences, options.samples)
        if sentences:
            self._translations = TranslationValidator(
                step.model,
                searches.build(config.search),
                self._datasets.pair,
                split,
                self._scorers,
                config.batching,
                place,
                sentences=sentences,
                samples=options.samples,
            )
            validators.append(self._translations)
        return validators


def _device(config: TrainConfig) -> torch.device:
    if config.device.threads is not None:
        torch.set_num_threads(config.device.threads)
    device = choose_device(config.device.name)
    with autocast(device, config.device.precision):  # says now if the device cannot do it
        logger.info("training on %s in %s", device, config.device.precision.name)
    return device


def _scorers(config: TrainConfig) -> dict[str, Scorer]:
    text = TextOptions(config.validation.tokenize, config.validation.lowercase)
    return {name: scorers.build(scorers.config_class(name)(), text) for name in config.validation.metrics}


def _higher_is_better(config: TrainConfig, built: Mapping[str, Scorer]) -> bool:
    metric = config.validation.best_metric
    return metric != "loss" and built[metric].higher_is_better

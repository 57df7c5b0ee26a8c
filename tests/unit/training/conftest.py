"""Finished parts for tests of the trainer: a tiny model, sentences in memory, and whatever a test puts in their place."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import Precision
from nmt.config.reporting import ReportConfig
from nmt.config.sections import CheckpointConfig, TrainingConfig, ValidationConfig
from nmt.criterions.config import CrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.data.batching.batch import Batch
from nmt.data.batching.variation import PlannedBatch
from nmt.data.corpus.folder import Split
from nmt.data.vocabulary import EOS, Ids
from nmt.distributed.world import World
from nmt.interface import VocabularySizes
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.reporting.reporter import Reporter
from nmt.training.checkpoints.run_state import DataPosition, RunSettings
from nmt.training.checkpoints.store import CheckpointStore
from nmt.training.checkpoints.writer import CheckpointWriter
from nmt.training.loop.batches import UpdateBatches, batch_reader, read_batch
from nmt.training.loop.learner import Arithmetic, Learner, Step
from nmt.training.loop.trainer import StopRequest, Trainer
from nmt.training.loop.updater import BadUpdates, Updater
from nmt.training.loop.validation import BestScore, Validation
from tests.tiny_models import tiny_pair

VOCABULARY = 12
SETTINGS = RunSettings("v", {}, 1, None, 1, "fp32", "cpu in fp32", {})


class Listed:
    """Sentences in memory."""

    def __init__(self, sentences: Sequence[Sequence[int]]) -> None:
        self._sentences = [np.array([*sentence, EOS]) for sentence in sentences]
        self.lengths = np.array([len(sentence) for sentence in self._sentences], dtype=np.int64)

    def __getitem__(self, index: int) -> Ids:
        return self._sentences[index]

    def text(self) -> list[str] | None:
        return None


def random_split(size: int, seed: int = 1, longest: int = 6) -> Split:
    """Sentence pairs of random pieces and lengths."""
    draw = np.random.default_rng(seed)
    sides = [[draw.integers(4, VOCABULARY, draw.integers(1, longest + 1)).tolist() for _ in range(size)] for _ in "st"]
    return Split("train", Listed(sides[0]), Listed(sides[1]))


class GivenUpdates:
    """Updates of given micro-batches, over and over; each round is an epoch."""

    def __init__(self, split: Split, updates: Sequence[Sequence[Sequence[int]]]) -> None:
        self._split = split
        self._updates = updates

    def at(self, position: DataPosition, update: int = 1) -> UpdateBatches:
        last = position.batch + 1 == len(self._updates)
        following = DataPosition(position.epoch + 1) if last else DataPosition(position.epoch, position.batch + 1)
        batches = tuple(PlannedBatch(np.array(indices), position.epoch) for indices in self._updates[position.batch])
        return UpdateBatches(batches, position.epoch, following)

    def batch(self, sentences: PlannedBatch) -> Batch:
        return read_batch(self._split, sentences.numbers)

    def start_of_epoch(self, epoch: int, update: int) -> DataPosition:
        return DataPosition(epoch)


def tiny_step(dropout: float = 0.0, seed: int = 1) -> Step:
    torch.manual_seed(seed)
    config = TransformerConfig(1, 1, d_model=8, d_ff=12, num_heads=2, dropout=dropout)
    return Step(
        Transformer(config, VocabularySizes(VOCABULARY, VOCABULARY, shared=True)),
        TokenCrossEntropy(CrossEntropyConfig()),
    )


@pytest.fixture
def make_trainer(tmp_path: Path) -> Callable[..., Trainer]:
    """A trainer of parts that arguments replace; ``split`` and ``updates`` say what it trains on."""

    def make(
        *,
        split: Split | None = None,
        updates: Sequence[Sequence[Sequence[int]]] = ([[0, 1]], [[2, 3]], [[4, 5]]),
        save: CheckpointConfig | None = None,
        **parts: Any,
    ) -> Trainer:
        tokenizer = tmp_path / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        options = replace(save or CheckpointConfig(save_interval=None), save_dir=str(tmp_path / "run"))
        step = parts.pop("step", None) or tiny_step()
        best = parts.pop("best", None) or BestScore("loss", higher_is_better=False)
        store = CheckpointStore(
            tmp_path / "run",
            options,
            config={"seed": 1, "model": {}, "training": {}, "checkpoint": {}},
            tokenizer=tokenizer,
            metric=best.metric,
            higher_is_better=best.higher_is_better,
        )
        store.prepare()
        defaults: dict[str, Any] = {
            "optimizer": torch.optim.SGD(step.named_parameters(), lr=1.0),
            "schedule": lambda progress: 1.0,
            "validators": (),
            "reporter": Reporter(tmp_path / "run", ReportConfig(log_interval=1), total_updates=None),
            "stop": StopRequest(),
            "limits": TrainingConfig(max_update=1),
            "validation": ValidationConfig(interval=None),
            "arithmetic": Arithmetic(torch.device("cpu"), Precision.fp32),
            "world": World(),
            "seed": 1,
            "clock": time.monotonic,
            "around_update": contextlib.nullcontext,
            "reader": batch_reader,
        }
        given = SimpleNamespace(**(defaults | parts))
        batches: Any = GivenUpdates(split or random_split(6), updates)
        learner = Learner(step, given.optimizer, given.arithmetic, given.world)
        read = given.reader(batches.batch, given.arithmetic.device)
        return Trainer(
            batches=batches,
            updater=Updater(learner, given.schedule, read, given.limits, given.seed, given.clock),
            validation=Validation(given.validators, best, given.validation, learner, given.seed),
            checkpoints=CheckpointWriter(store, asynchronous=options.asynchronous),
            settings=SETTINGS,
            reporter=given.reporter,
            bad_updates=BadUpdates(tmp_path / "run", tiny_pair()),
            stop=given.stop,
            clock=given.clock,
            limits=given.limits,
            around_update=given.around_update,
        )

    return make


@pytest.fixture
def make_step() -> Callable[..., Step]:
    return tiny_step


@pytest.fixture
def make_split() -> Callable[..., Split]:
    return random_split

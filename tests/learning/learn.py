"""Two tasks that need all of encoder, decoder and search, and how well a preset learns them."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.preprocessing import PreprocessConfig
from nmt.config.reporting import ReportConfig
from nmt.config.sections import (
    BatchingConfig,
    CheckpointConfig,
    DeviceConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.criterions.config import CrossEntropyConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import LinearConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.search.config import GreedyConfig
from nmt.training.assemble import train
from nmt.translation import Translator

TASKS = {"copy": 1, "reverse": -1}  # the step with which a target walks through its source
SYMBOLS = "abcdefghijklmnopqrst"
LONGEST = 10
PAIRS, VALID, TEST = 20_000, 200, 1000  # PAIRS: of training, where a recipe says nothing else
PASSED = 99.0  # per cent; more than that is learnt


@dataclass(frozen=True)
class Recipe:
    """How a reduced preset learns in seconds to minutes."""

    sizes: dict[str, Any]  # options of the preset that are replaced
    rate: float  # at its peak
    updates: int
    max_tokens: int = 512
    pairs: int = PAIRS  # of training
    warmup: int | None = None  # updates; None: as the scheduler chooses


@dataclass(frozen=True)
class Result:
    """What a training run came to."""

    exact: float  # per cent of the test strings
    seconds: float  # CPU time, of training and test together
    wrong: list[tuple[str, str]]  # sources and their wrong translations

    @property
    def passed(self) -> bool:
        return self.exact > PASSED


def make_splits(pairs: int = PAIRS, seed: int = 1) -> dict[str, list[str]]:
    """Strings by split, their lengths drawn evenly; held-out strings are distinct and occur nowhere else.

    A tenth of all strings there are is held out. So short ones are learnt as well, although there are only 20 of length
    1 and 400 of length 2: training repeats them, and few of them are tested.
    """
    draw = random.Random(seed)
    train: list[str] = []
    held_out: dict[str, None] = {}  # a set with an order
    while len(train) < pairs or len(held_out) < VALID + TEST:
        string = " ".join(draw.choices(SYMBOLS, k=draw.randint(1, LONGEST)))
        if zlib.crc32(string.encode()) % 10 == 0:
            held_out[string] = None
        else:
            train.append(string)
    unseen = list(held_out)
    draw.shuffle(unseen)
    return {"train": train[:pairs], "valid": unseen[:VALID], "test": unseen[VALID : VALID + TEST]}


def make_corpus(task: str, folder: Path, pairs: int = PAIRS) -> Path:
    """The corpus folder of a task; ``folder`` keeps the text too."""
    splits = make_splits(pairs)
    for split, lines in splits.items():
        for language, step in (("src", 1), ("tgt", TASKS[task])):
            text = "".join(f"{line[::step]}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    prefixes: dict[str, Any] = {f"{split}pref": str(folder / split) for split in splits}
    config = PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, **prefixes)
    config.destdir = str(folder / "corpus")
    preprocess(config)
    return folder / "corpus"


def learn(model: Any, recipe: Recipe, corpus: Path, run: Path, seed: int) -> Result:
    """Train in the folder ``run``; the checkpoint with the least validation loss then translates the test strings."""
    start = time.process_time()
    teach(model, recipe, [corpus], run, seed)
    sources, targets = (
        (corpus.parent / f"test.{language}").read_text(encoding="utf-8").splitlines() for language in ("src", "tgt")
    )
    found = Translator.load(run, device="cpu").translate(sources, search="greedy")
    wrong = [(source, text) for source, text, target in zip(sources, found, targets, strict=True) if text != target]
    return Result(100.0 - 100.0 * len(wrong) / len(sources), time.process_time() - start, wrong)


def teach(model: Any, recipe: Recipe, corpora: Sequence[Path], run: Path, seed: int) -> None:
    """Train on all of these in the folder ``run``."""
    train(
        TrainConfig(
            data=list(map(str, corpora)),
            model=model,
            criterion=CrossEntropyConfig(),
            optimizer=AdamConfig(lr=recipe.rate),
            scheduler=LinearConfig(recipe.warmup),  # a rate that falls to zero is worth the last per cent
            search=GreedyConfig(),
            batching=BatchingConfig(max_tokens=recipe.max_tokens),
            training=TrainingConfig(max_update=recipe.updates, clip_norm=1.0),
            validation=ValidationConfig(interval=None, interval_updates=max(1, recipe.updates // 5), samples=0),
            checkpoint=CheckpointConfig(save_dir=str(run), save_interval=None),
            report=ReportConfig(log_interval=100, html=False, count_flops=False),
            device=DeviceConfig("cpu", threads=1),
            seed=seed,
        )
    )

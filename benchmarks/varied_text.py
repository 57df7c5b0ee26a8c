"""Cost of training on text that differs from epoch to epoch, or on a mixture of corpora: speed with and without it.

    python benchmarks/varied_text.py CORPUS
    python benchmarks/varied_text.py CORPUS --with "--bpe-dropout 0.1" --with "--unigram-alpha 0.2 --readers 1"
    python benchmarks/varied_text.py A B C --with "--sampling-weights 3,1,1"

Each CORPUS is a corpus folder, made with --keep-text if --augment is tried; several are trained on together. One
process trains a model of the preset on the CPU. It makes a few updates with the batches of each variant in turns:
reading a batch, forward and backward pass, optimizer step. Readers also prepare batches during the turns of other
variants, so their cost spreads over all speeds; measure them in a separate call.

Prints a Markdown table: target tokens a second (the median of all turns), the ratio to the adjacent turn without
options (the median of all turns, and the quartiles), tokens per update, the share of the time that reading takes, and
the seconds to plan the first epoch. On a shared machine use the ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - registers their options
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.sections import TrainConfig
from nmt.distributed.world import World
from nmt.threads import set_threads
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import TrainingBatches, readers_of
from nmt.training.setup.datasets import open_datasets, stages_of
from nmt.training.setup.parts import build_optimizer, build_step, new_model
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import grammar_of

PLAIN = ""
TRIED = ("--bpe-dropout 0.1",)
TRAIN = "model=transformer_tiny --max-tokens 2048 --lr 0.003 --dropout 0.2 --validate-interval null"


@dataclass
class Kind:
    """Batches of a variant (some options), with their measurements."""

    options: str
    batches: TrainingBatches
    position: DataPosition = field(default_factory=DataPosition)
    speeds: list[float] = field(default_factory=list)  # by turn
    pieces: list[int] = field(default_factory=list)  # by update
    reading: list[float] = field(default_factory=list)  # share of the time for reading, by turn
    planning: float = 0.0  # seconds for the first epoch

    def plan(self) -> None:
        began = time.perf_counter()
        self.batches.at(self.position)
        self.planning = time.perf_counter() - began

    def turn(self, step: torch.nn.Module, optimizer: torch.optim.Optimizer, updates: int) -> None:
        began, read, pieces = time.perf_counter(), 0.0, 0
        for _ in range(updates):
            update = self.batches.at(self.position)
            self.batches.readers.announce(self.batches.at(update.following).batches)
            asked = time.perf_counter()
            batch = self.batches.batch(update.batches[0])
            read += time.perf_counter() - asked
            optimizer.zero_grad(set_to_none=True)
            report = step(batch)
            (report.loss_sum / report.denominator).backward()
            optimizer.step()
            self.position = update.following
            self.pieces.append(batch.num_tokens)
            pieces += batch.num_tokens
        took = time.perf_counter() - began
        self.speeds.append(pieces / took)
        self.reading.append(read / took)


def configured(corpora: Sequence[str], options: str) -> TrainConfig:
    """Compose a configuration as nmt-train does from its command line."""
    line = rewrite([*corpora, *shlex.split(options)], grammar_of(TrainConfig))
    config = compose(TrainConfig, read(line.overrides)).config
    assert isinstance(config, TrainConfig)
    return config


def kind(corpora: Sequence[str], options: str, train: str) -> Kind:
    config = configured(corpora, f"{train} {options}")
    datasets = open_datasets(config)
    batches = TrainingBatches(
        datasets.train,
        config.batching,
        config.seed,
        stages=stages_of(config, datasets),
        variation=datasets.variation,
        readers=readers_of(datasets.variation, config.variation.readers or 0),
    )
    return Kind(options, batches)


def rows(kinds: Sequence[Kind]) -> Iterator[str]:
    yield "| options | target tokens/s | ratio | quartiles | tokens per update | share of reading | planning, s |"
    yield "|---" * 7 + "|"
    for one in kinds:
        ratios = [speed / plain for speed, plain in zip(one.speeds, kinds[0].speeds)]
        low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
        speed, share = statistics.median(one.speeds), 100 * statistics.median(one.reading)
        cells = (
            f"{speed:,.0f}",
            f"{middle:.3f}",
            f"{low:.2f}-{high:.2f}",
            f"{np.mean(one.pieces):,.0f}",
            f"{share:.1f} %",
            f"{one.planning:.2f}",
        )
        yield f"| {f'`{one.options}`' if one.options else 'none'} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="corpus folder")
    parser.add_argument("--with", dest="tried", action="append", help="options to measure; repeat it for several")
    parser.add_argument("--train", default=TRAIN, help="options of all variants")
    parser.add_argument("--turns", type=int, default=40, help="turns of each variant; the first one is dropped")
    parser.add_argument("--updates", type=int, default=2, help="updates per turn")
    parser.add_argument("--threads", type=int, help="number of threads of torch")
    given = parser.parse_args(argv)
    if given.turns < 2 or given.updates < 1:
        parser.error("give at least --turns 2 and --updates 1")
    set_threads(given.threads)
    kinds = [kind(given.corpora, options, given.train) for options in (PLAIN, *(given.tried or TRIED))]
    config = configured(given.corpora, given.train)
    datasets, device = open_datasets(config), torch.device("cpu")
    step = build_step(config, datasets, new_model(config, datasets), device, World()).train()
    optimizer = build_optimizer(config, step)
    with contextlib.ExitStack() as stack:
        for one in kinds:
            stack.enter_context(one.batches.readers)
            one.plan()
        for number in range(given.turns):
            for one in kinds if number % 2 == 0 else reversed(kinds):
                one.turn(step, optimizer, given.updates)
    for one in kinds:
        del one.speeds[0], one.reading[0]
    print("\n".join(rows(kinds)))


if __name__ == "__main__":
    main()

"""Forecast the training time of a recipe: operations counted from its model, divided by an assumed rate.

    python examples/forecast.py vaswani_big --pieces 37000 --lengths 30 30
    python examples/forecast.py parsing_wsj --pieces 16000 60 --lengths 25 63 --tflops 42 --devices 8
    python examples/forecast.py vaswani_base model.d_ff=1024 --pieces 37000 --lengths 30 30

Nothing is trained. Arguments after the recipe change it, as for nmt-train. --pieces has the sizes of the two
vocabularies, or of the joint vocabulary. --lengths has the tokens of a source and of a target sentence, eos included.
The recipe sets the number and the size of updates. If it has tokens_per_update, an update is about as large on several
devices as on one; otherwise it is larger.

The rate that a device sustains (--tflops) is far below the vendor's figure, and lower for small models than for large
ones. The default is the rate of one NVIDIA A100 in mixed precision. A measured rate is better: the speed of a short
run in target tokens per second, times the operations per token that this script prints.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nmt.config.batching import AUTO, BatchingConfig
from nmt.config.choices import Precision
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.sections import TrainConfig
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.data.corpus.folder import Split
from nmt.data.vocabulary import EOS, SPECIALS
from nmt.errors import NMTError, UsageError
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.progress import going_on
from nmt.training.loop.learner import Arithmetic, Step
from nmt.training.setup.operations import flops_per_token

# NVIDIA's DeepLearningExamples (PyTorch/Translation/Transformer) report 82,059 target tokens per second for the big
# Transformer on one A100-40GB with automatic mixed precision and a vocabulary of 33,708 tokens. This script counts
# 1.27e9 operations per token for it.
ASSUMED_TFLOPS = 104.0


class _Equal:
    """One side of a split: sentences of the same length, eos included."""

    def __init__(self, length: int) -> None:
        self.lengths = np.full(16, length, dtype=np.int64)

    def __getitem__(self, number: int) -> Any:
        return np.array([*[len(SPECIALS)] * (int(self.lengths[number]) - 1), EOS])

    def text(self) -> list[str] | None:
        return None


def operations_per_token(model: Any, sizes: VocabularySizes, source: int, target: int) -> float:
    """Return the training operations per target token on pairs of these lengths, counted as in nmt-train.

    ``model`` is the configuration of the model.
    """
    step = Step(models.build(model, sizes), TokenCrossEntropy(LabelSmoothedCrossEntropyConfig()))
    arithmetic = Arithmetic(torch.device("cpu"), Precision.fp32)
    sides: Any = (_Equal(source), _Equal(target))  # the only attributes of a corpus that counting uses
    found = flops_per_token(step, Split("train", *sides), arithmetic, seed=1)
    if found is None:
        raise UsageError(
            "the operations of this model cannot be counted, for the reason above; change its options or --lengths"
        )
    return found


def hours(operations: float, tflops: float, devices: int) -> float:
    """Return the hours for these operations on devices that each sustain ``tflops`` * 10^12 operations per second."""
    return operations / (devices * tflops * 1e12) / 3600


def written(time: float) -> str:
    """Format hours with the precision of a forecast."""
    return f"{time:.2g}" if time < 10 else f"{time:,.0f}"


@dataclass(frozen=True)
class Forecast:
    """The computation of a recipe from its first update to its last."""

    operations_per_token: float
    tokens: float  # target tokens per update
    updates: int

    @property
    def operations(self) -> float:
        return self.operations_per_token * self.tokens * self.updates


def read_recipe(name: str, options: Sequence[str] = ()) -> TrainConfig:
    """Compose a recipe with changes KEY=VALUE, as in nmt-train."""
    config: TrainConfig = compose(TrainConfig, read([f"recipe={name}", *options, "data=[first,second]"])).config
    return config


def pairs_of_an_update(batching: BatchingConfig, source: int, target: int, devices: int) -> float | None:
    """Return the sentence pairs of an update with full batches over all devices; None without a batch size."""
    sides = (None, None) if batching.max_tokens == AUTO else batching.limits
    limits = [limit / length for limit, length in zip(sides, (source, target)) if limit is not None]
    limits += [] if batching.batch_size is None else [batching.batch_size]
    if not limits or (batching.tokens_per_update is not None and batching.max_tokens == AUTO):
        return None
    return batching.accumulation(devices) * devices * min(limits)


def forecast(config: TrainConfig, sizes: VocabularySizes, source: int, target: int, devices: int = 1) -> Forecast:
    """Forecast the computation of a recipe with full updates."""
    updates, pairs = config.training.last_update, pairs_of_an_update(config.batching, source, target, devices)
    if updates is None or pairs is None:
        raise UsageError("this recipe has no number of updates, or no batch size; a forecast needs both")
    return Forecast(operations_per_token(config.model, sizes, source, target), pairs * target, updates)


def table(recipe: str, found: Forecast, tflops: float, devices: int) -> str:
    on = f"hours at {tflops:g} TFLOPS" + (f" on each of {devices} devices" if devices > 1 else "")
    head = ("recipe", "updates", "target tokens an update", "operations a target token", "operations", on)
    row = (
        recipe,
        f"{found.updates:,}",
        f"{found.tokens:,.0f}",
        f"{found.operations_per_token:.3g}",
        f"{found.operations:.3g}",
        written(hours(found.operations, tflops, devices)),
    )
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), row))


def add_rate(parser: argparse.ArgumentParser) -> None:
    """Add the options for the rate of a forecast."""
    parser.add_argument(
        "--tflops",
        type=float,
        default=ASSUMED_TFLOPS,
        help=f"rate that a device sustains, in 10^12 operations per second ({ASSUMED_TFLOPS:g}: one A100 in mixed "
        f"precision, from NVIDIA's figures for the big Transformer)",
    )
    parser.add_argument("--devices", type=int, default=1, help="number of devices that train together (1)")


def check_rate(tflops: float, devices: int) -> None:
    if not (tflops > 0 and devices > 0):
        raise UsageError(f"--tflops {tflops:g} and --devices {devices} must both be above 0")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Forecast the hours that a recipe trains, from counted operations.")
    parser.add_argument("recipe", help="name of the recipe, such as vaswani_big")
    parser.add_argument("options", nargs="*", help="changes of the recipe, such as model.d_ff=1024")
    parser.add_argument(
        "--pieces", type=int, nargs="+", required=True, help="vocabulary sizes in tokens; one size: joint vocabulary"
    )
    parser.add_argument(
        "--lengths", type=int, nargs=2, required=True, help="tokens of a source and of a target sentence, eos included"
    )
    add_rate(parser)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        check_rate(given.tflops, given.devices)
        if len(given.pieces) > 2 or min(given.pieces) <= len(SPECIALS) or min(given.lengths) < 2:
            raise UsageError(
                f"--pieces takes one or two sizes above {len(SPECIALS)}, and --lengths two numbers of at least 2"
            )
        sizes = VocabularySizes(given.pieces[0], given.pieces[-1], shared=len(given.pieces) == 1)
        with going_on("counting operations"):
            found = forecast(read_recipe(given.recipe, given.options), sizes, *given.lengths, given.devices)
        print(table(" ".join([given.recipe, *given.options]), found, given.tflops, given.devices))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

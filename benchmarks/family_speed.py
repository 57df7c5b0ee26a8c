"""Training and decoding speed of several trained models, on one thread, in turns.

    python benchmarks/family_speed.py CORPUS TEXT transformer=RUN lstm=RUN ...

CORPUS is the corpus folder that the runs were trained on, TEXT a source text (plain or .gz). In a round each model
makes the same updates on the same batches and translates the same lines with a beam. The script measures CPU time,
which other programs hardly change. Prints a Markdown table of the medians: target tokens a second in training
(forward, backward and optimizer), and sentences a second in decoding.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nmt import Translator
from nmt.config.sections import BatchingConfig
from nmt.criterions import criterions
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.corpus.folder import open_corpora
from nmt.data.text.lines import Reading
from nmt.models.loading import load_model
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import TrainingBatches
from nmt.training.loop.learner import Step
from nmt.training.loop.updater import divide


@dataclass
class Speeds:
    """Speeds of one model, by round."""

    parameters: int
    training: list[float] = field(default_factory=list)  # target tokens per CPU second
    decoding: list[float] = field(default_factory=list)  # sentences per CPU second


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


class Trained:
    """A trained model, ready for more training and for translation."""

    def __init__(self, run: str, batches: TrainingBatches) -> None:
        model = load_model(run, torch.device("cpu")).module
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.step = Step(model.train(), criterions.build(LabelSmoothedCrossEntropyConfig()))
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-9)  # so small that the weights hardly change
        self.batches = batches
        self.translator = Translator.load(run, device="cpu")

    def train(self, updates: int) -> int:
        """Make updates and return their number of target tokens."""
        position, tokens = DataPosition(), 0
        for _ in range(updates):
            update = self.batches.at(position)
            for indices in update.batches:
                report = self.step(self.batches.batch(indices))
                report.loss_sum.backward()
                tokens += int(report.num_tokens)
            gradients = [parameter.grad for parameter in self.step.parameters() if parameter.grad is not None]
            divide(gradients, report.denominator)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            position = update.following
        return tokens


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the training and decoding speed of models trained on one corpus."
    )
    parser.add_argument("corpus", help="corpus folder")
    parser.add_argument("text", help="source text to translate")
    parser.add_argument("run", nargs="+", help="NAME=RUN_FOLDER; ratios are relative to the first")
    parser.add_argument("--max-tokens", type=int, default=2048, help="target tokens per update (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=15, help="updates per round (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=200, help="lines to translate per round (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds, of which the median is reported (default: %(default)s)"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    (corpus,) = open_corpora([arguments.corpus])
    batches = TrainingBatches(corpus.split("train"), BatchingConfig(max_tokens=arguments.max_tokens), seed=1)
    lines = [line for line, _ in zip(Reading().lines(Path(arguments.text)), range(arguments.lines))]
    named = dict(run.split("=", 1) for run in arguments.run)
    models = {name: Trained(run, batches) for name, run in named.items()}
    speeds = {name: Speeds(model.parameters) for name, model in models.items()}
    for _ in range(arguments.rounds):
        for name, model in models.items():
            model.train(1)  # one-time allocations do not count
            tokens = 0

            def train(model: Trained = model) -> None:
                nonlocal tokens
                tokens = model.train(arguments.updates)

            seconds = cpu_seconds(train)
            speeds[name].training.append(tokens / seconds)
            translator = model.translator
            seconds = cpu_seconds(lambda t=translator: t.translate(lines, beam=5, length_penalty="power", lenpen=1.0))
            speeds[name].decoding.append(len(lines) / seconds)
    first = next(iter(speeds.values()))
    print(
        "| model | parameters | training, target tokens/s | ratio to the first | decoding, sentences/s | ratio to "
        "the first |"
    )
    print("|---|---|---|---|---|---|")
    for name, speed in speeds.items():
        training, decoding = statistics.median(speed.training), statistics.median(speed.decoding)
        print(
            f"| {name} | {speed.parameters:,} | {training:,.0f} | {training / statistics.median(first.training):.2f} "
            f"| {decoding:.1f} | {decoding / statistics.median(first.decoding):.2f} |"
        )


if __name__ == "__main__":
    main()

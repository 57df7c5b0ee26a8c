"""Speed and memory of training an adapter, next to training all parameters of the same model, in turns.

    python benchmarks/adapter_speed.py CORPUS MODEL --rounds 3 --threads 1

MODEL is a run folder whose vocabularies are those of CORPUS. Each process makes some updates of MODEL and reports equal
stretches of them; the first stretch is dropped. Prints a Markdown table: target tokens a second as the median over the
rounds of the median within a round, the range over the rounds, the ratio to training all parameters (the median of the
ratios within a round), and the peak memory of a process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from training_speed import HERE, Engine, faster_by

WAYS = {
    "all parameters": "",
    "biases only": "--train-only *bias",
    "adapter of rank 4": "--lora-rank 4",
    "adapter of rank 16": "--lora-rank 16",
    "adapter of rank 16, and whole embeddings": "--lora-rank 16 --train-only *embedding*",
    "adapter of rank 64, all matrices": "--lora-rank 64 --lora-on *",
}


def engine(name: str, options: str, arguments: argparse.Namespace, work: Path) -> Engine:
    """Return the training of a way as an engine of training_speed.py."""
    model = str(arguments.model.resolve())
    own = ["--config", model, "--finetune-from-model", model, *options.split()]
    return training(name, arguments.corpus, own, arguments, work)


def training(name: str, corpus: Path, options: Sequence[str], arguments: argparse.Namespace, work: Path) -> Engine:
    """Return a training of nmt-train as an engine of training_speed.py."""
    run = work / "run"
    command = [sys.executable, "-m", "nmt_cli.train", str(corpus.resolve()), "--device", "cpu", *options]
    command += ["--max-epoch", "0", "--max-update", str(arguments.updates), "--threads", str(arguments.threads)]
    command += ["--log-interval", str(arguments.updates // 5), "--save-dir", str(run), "--no-html"]
    command += ["validation.interval=null", "--progress", "lines"]

    def read(_: str) -> list[float]:
        events = map(json.loads, (run / "log.jsonl").read_text().splitlines())
        return [event["tokens_per_second"] for event in events if event["event"] == "train"]

    return Engine(name, command, read, {"PYTHONPATH": str(HERE.parent)}, run)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the training of adapters with that of all parameters.")
    parser.add_argument("corpus", type=Path, help="corpus folder")
    parser.add_argument("model", type=Path, help="run folder of a model with the same vocabularies")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each way (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=25, help="updates of a run (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engines = [engine(name, options, arguments, Path(folder)) for name, options in WAYS.items()]
        compare(engines, arguments, "trained")


def compare(engines: Sequence[Engine], arguments: argparse.Namespace, what: str) -> None:
    """Run the engines in turns, and print a Markdown table with the ratio to the first one."""
    for _ in range(arguments.rounds):
        for each in engines:
            each.run(arguments.threads)
    print(f"| {what} | target tokens/s | rounds | speed / {engines[0].name} | memory, MiB |\n|---|---|---|---|---|")
    for each in engines:
        rounds = f"{min(each.speeds):,.0f} to {max(each.speeds):,.0f}"
        ratio = faster_by(each.speeds, engines[0].speeds)
        cells = (
            each.name,
            f"{statistics.median(each.speeds):,.0f}",
            rounds,
            f"{ratio:.3f}",
            f"{each.memory / 2**20:,.0f}",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

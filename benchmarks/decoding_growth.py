"""Speed and memory of translating as the input grows.

    python benchmarks/decoding_growth.py MODEL TEXT --sizes 1000 10000 100000 --ours "--dtype int8"

MODEL is a run folder or checkpoint, TEXT a plain or gzipped file from which the lines are drawn. The sizes take turns.
Prints a Markdown table: lines a second without start-up (the median of the rounds, and their range), and the peak
memory of the process with its children.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
from pathlib import Path

from decoding_speed import Task, ours, read

from nmt.storage.run_folder import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed and memory of translation by input size.")
    parser.add_argument("model", type=Path, help="run folder or checkpoint")
    parser.add_argument("text", type=Path, help="text from which lines are drawn")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="lines to translate")
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of translations of each size (default: %(default)s)"
    )
    parser.add_argument("--ours", default="--precision fp32", help="options of nmt-generate (default: %(default)s)")
    arguments = parser.parse_args()
    lines, model = read(arguments.text), resolve(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        engines = {}
        for size in arguments.sizes:
            work = Path(folder) / str(size)
            work.mkdir()
            drawn = random.Random(1).choices(lines, k=size)
            (work / "text").write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
            task = Task(model, work / "text", work, os.cpu_count() or 1, "cpu")
            engines[size] = ours(task, arguments.ours, 0)
        for _ in range(arguments.rounds):
            for size, engine in engines.items():
                engine.run()
                assert len(engine.texts()) == size
    print("| lines | lines/s | rounds | memory, MiB |\n|---|---|---|---|")
    for size, engine in engines.items():
        rounds = f"{min(engine.speeds):,.0f} to {max(engine.speeds):,.0f}"
        print(f"| {size:,} | {statistics.median(engine.speeds):,.0f} | {rounds} | {engine.memory / 2**20:,.0f} |")


if __name__ == "__main__":
    main()

"""Whether speed and memory of translating stay the same as the input grows.

    python benchmarks/decoding_growth.py MODEL TEXT --sizes 1000 10000 100000 --ours "--dtype int8"

MODEL is a run folder or checkpoint, TEXT a plain or gzipped file; as many lines as a size says are drawn from it. Prints a
Markdown table: lines a second without the time to start, and the most memory of the process with its children.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from pathlib import Path

from decoding_speed import Task, ours, read

from nmt.storage.checkpoints import resolve


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of translating as the input grows.")
    parser.add_argument("model", type=Path, help="run folder or checkpoint")
    parser.add_argument("text", type=Path, help="what lines are drawn from")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="lines to translate")
    parser.add_argument("--ours", default="--precision fp32", help="setting of nmt-generate (default: %(default)s)")
    arguments = parser.parse_args()
    lines, model = read(arguments.text), resolve(arguments.model)
    print("| lines | lines/s | memory, MiB |\n|---|---|---|", flush=True)
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text"
            drawn = random.Random(1).choices(lines, k=size)
            text.write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
            engine = ours(Task(model, text, Path(folder), os.cpu_count() or 1, "cpu"), arguments.ours, 0)
            engine.run()
            assert len(engine.texts()) == size
        print(f"| {size:,} | {engine.speeds[0]:,.0f} | {engine.memory / 2**20:,.0f} |", flush=True)


if __name__ == "__main__":
    main()

"""Lines whose translation depends on their batch, on the order of the lines or on the number of processes.

    python benchmarks/batch_invariance.py MODEL TEXT --lines 10000 --ours "--dtype float32" "--dtype int8"

MODEL is a run folder or checkpoint, TEXT plain or gzipped. For every setting of nmt-generate (one per argument) one
worker translates the lines in order. Then the lines are translated shuffled, in small and in large batches, and by two
workers. Prints a Markdown table: lines that differ from the first translation, the number of these that are not ties
(their forced scores differ by 1e-4 or more), and the largest difference of the scores of a line.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIE = 1e-4
WAYS = {
    "shuffled, 3 lines per batch": ("--batch-size", "3", "--workers", "1"),
    "shuffled, 8,192 tokens per batch": ("--max-tokens", "8192", "--workers", "1"),
    "shuffled, two workers": ("--workers", "2", "--max-tokens", "700"),
}
Best = dict[str, Any]


def translated(model: str, lines: list[str], folder: Path, *options: str) -> list[Best]:
    """Return the best hypothesis of each line."""
    source, output = folder / "source", folder / "output"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "nmt_cli.generate", "--path", model, "--input", source, "--output", output]
    command += ["--overwrite", "--format", "jsonl", "--device", "cpu", *options]
    done = subprocess.run(list(map(str, command)), stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr[-3000:])
    with open(output, encoding="utf-8") as file:
        return [json.loads(line)["hypotheses"][0] for line in file]


def forced(model: str, pairs: list[tuple[str, str]], folder: Path, *options: str) -> list[float]:
    """Return the scores of given translations, over the whole vocabulary instead of a shortlist."""
    if "--shortlist" in options:
        at = options.index("--shortlist")
        options = options[:at] + options[at + 2 :]
    lines = [f"{source}\t{target}" for source, target in pairs]
    asked = ("--score-reference", "--input-format", "tsv", *options)
    return [best["score"] for best in translated(model, lines, folder, *asked)] if lines else []


def compared(model: str, lines: list[str], setting: list[str], way: tuple[str, ...], first: list[Best]) -> str:
    order = random.Random(1).sample(range(len(lines)), len(lines))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shuffled = translated(model, [lines[place] for place in order], folder, *setting, *way)
        found = [best for _, best in sorted(zip(order, shuffled), key=lambda pair: pair[0])]
        others = [place for place, (one, other) in enumerate(zip(first, found)) if one["text"] != other["text"]]
        scores = [
            forced(model, [(lines[place], side[place]["text"]) for place in others], folder, *setting)
            for side in (first, found)
        ]
    no_tie = sum(abs(one - other) >= TIE for one, other in zip(*scores))
    gap = max(abs(one["score"] - other["score"]) for one, other in zip(first, found))
    return f"{len(others):,} | {no_tie:,} | {gap:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="run folder or checkpoint")
    parser.add_argument("text", help="text to translate")
    parser.add_argument("--lines", type=int, default=10_000, help="number of lines to translate (default: 10000)")
    parser.add_argument(
        "--ours", nargs="+", default=["--dtype float32"], help="options of nmt-generate, one string per setting"
    )
    arguments = parser.parse_args()
    opened = gzip.open if arguments.text.endswith(".gz") else open
    with opened(arguments.text, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").replace("\t", " ") for line, _ in zip(file, range(arguments.lines))]
    print(
        f"| setting, {len(lines):,} lines | batching | different translations | not ties | largest difference of "
        "scores |"
    )
    print("|---|---|---|---|---|")
    for setting in arguments.ours:
        with tempfile.TemporaryDirectory() as folder:
            first = translated(arguments.model, lines, Path(folder), *setting.split(), "--workers", "1")
        for name, way in WAYS.items():
            counted = compared(arguments.model, lines, setting.split(), way, first)
            print(f"| {setting} | {name} | {counted} |", flush=True)


if __name__ == "__main__":
    main()

"""What training on text that differs from epoch to epoch costs: the speed with it beside the speed without, in turns.

    python benchmarks/varied_text.py CORPUS --rounds 5
    python benchmarks/varied_text.py CORPUS --with "--bpe-dropout 0.1" --with "--unigram-alpha 0.2 --readers 1" \
        --train "model=transformer_tiny --max-tokens 2048"

CORPUS is a corpus folder, made with --keep-text where --augment is tried. In each round nmt-train makes some updates without
the options and with each of them, one run after the other in a process of its own; the first stretch of each is dropped.
Prints a Markdown table: target pieces a second (the median of the medians of all rounds), and the ratio to the run without
in the same round (the median of the rounds, and their range): on a machine that others use too the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PLAIN = ""
TRIED = ("--bpe-dropout 0.1", "--bpe-dropout 0.1 --readers 1")
TRAIN = "model=transformer_tiny --max-tokens 2048 --lr 0.003 --dropout 0.2 --warmup-updates 10"
QUIET = "--validate-interval null --valid-samples 0 --save-interval null --no-html --no-count-flops --progress none"


def speed(corpus: str, options: str, updates: int, every: int) -> float:
    """Target pieces a second."""
    with tempfile.TemporaryDirectory() as folder:
        limits = f"--max-update {updates} --log-interval {every} --save-dir {shlex.quote(folder)}/run"
        command = [sys.executable, "-m", "nmt_cli.train", corpus, *shlex.split(f"{QUIET} {limits} {options}")]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"nmt-train {options} failed with status {done.returncode}:\n{done.stdout[-3000:]}")
        events = map(json.loads, (Path(folder) / "run/log.jsonl").read_text(encoding="utf-8").splitlines())
        stretches = [event["tokens_per_second"] for event in events if event["event"] == "train"]
    return statistics.median(stretches[1:])


def table(speeds: dict[str, list[float]]) -> str:
    """Of the speeds by round."""
    lines = ["| options | target pieces/s | ratio | range |", "|---|---|---|---|"]
    for options, found in speeds.items():
        ratios = [one / plain for one, plain in zip(found, speeds[PLAIN])]
        spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
        name = f"`{options}`" if options else "none"
        lines.append(f"| {name} | {statistics.median(found):,.0f} | {statistics.median(ratios):.3f} | {spread} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--with", dest="tried", action="append", help="options to try; several times for several")
    parser.add_argument("--train", default=TRAIN, help="options of all runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60, help="of a run")
    parser.add_argument("--every", type=int, default=10, help="updates of a stretch")
    given = parser.parse_args(argv)
    if given.rounds < 1 or given.updates < 2 * given.every:
        parser.error("at least one round, and two stretches (--updates, --every) in a run")
    speeds: dict[str, list[float]] = {options: [] for options in (PLAIN, *(given.tried or TRIED))}
    for number in range(given.rounds):
        order = [*speeds] if number % 2 == 0 else [*reversed(speeds)]
        for options in order:
            found = speed(given.corpus, f"{given.train} {options}", given.updates, given.every)
            speeds[options].append(found)
            print(f"round {number + 1}: {options or 'none'}: {found:.0f}", file=sys.stderr, flush=True)
    print(table(speeds))


if __name__ == "__main__":
    main()

"""Report speed and memory of the base and the big model, and a row of Table 3 at full size, for throughput.sh.

    python examples/wmt14/throughput.py invent runs/throughput/text --pairs 200000 --words 37000
    python examples/wmt14/throughput.py report runs/throughput --results runs/throughput/results.json

``invent`` writes sentences of invented words, 29 on average: speed depends on lengths and on the size of the
vocabulary, not on meaning. ``report`` reads the run folders. Speed is the median over the log records of a run without
the first one, which includes one-time work. The operations per target token times the speed are the rate (--tflops) of
examples/forecast.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "table3"))

from results import Result, add_all, of_runs
from rows import ROWS

from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.reporting.run_record import RunRecord
from nmt.storage.files import explained_os_errors

MEAN_LENGTH = 29.0  # words per sentence
SHAPE = 0.6  # standard deviation of the logarithm of the length
LONGEST = 250
BASE, ROW = "base_row", "c_2_layers"  # run folders of the base model and of the row of Table 3


def invent(folder: Path, pairs: int, words: int) -> None:
    """Write both sides of ``train``. Each word occurs; the share of the n-th word follows 1/n, as in real text."""
    chance = np.random.default_rng(1)
    shares = 1 / np.arange(1, words + 1)
    with explained_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lengths = chance.lognormal(np.log(MEAN_LENGTH) - SHAPE**2 / 2, SHAPE, pairs)
        for language in ("en", "de"):
            own = np.clip((lengths * chance.normal(1, 0.1, pairs)).round(), 1, LONGEST).astype(int)
            drawn = chance.choice(words, own.sum(), p=shares / shares.sum())
            drawn[: min(words, len(drawn))] = np.arange(min(words, len(drawn)))
            with open(folder / f"train.{language}", "w", encoding="utf-8") as file:
                for line in np.split(drawn, own.cumsum()[:-1]):
                    file.write(" ".join(map("w{}".format, line)) + "\n")


@dataclass(frozen=True)
class Speed:
    """Speed and memory of a finished run."""

    model: str
    folder: Path
    tokens_per_second: float
    memory_gb: float
    batches: int | None  # maximum batch size in tokens; None: unknown
    tflops: float | None  # 10^12 operations per second of one device; None: not counted

    @classmethod
    def read(cls, folder: Path) -> Speed:
        record = RunRecord.read(folder)
        trained, start = record.of("train")[1:], record.last("start")
        if not trained:
            raise DataError(f"{folder} has too few updates to measure its speed; give throughput.sh more MINUTES")
        speed = statistics.median(event["tokens_per_second"] for event in trained)
        memory = max(event["memory_mb"] for event in trained) / 1000
        each = start.get("flops_per_token")
        tflops = None if each is None else each * speed / (start.get("devices") or 1) / 1e12
        limit = record.config.get("batching", {}).get("max_tokens")
        return cls(folder.name, folder, speed, memory, limit if isinstance(limit, int) else None, tflops)


def table(speeds: Sequence[Speed]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| model | hardware | target tokens a second | GB of memory a process | TFLOPS a device |",
        "|---|---|---|---|---|",
    ]
    for one in speeds:
        rate = "" if one.tflops is None else f"{one.tflops:.3g}"
        hardware = of_runs([one.folder])["hardware"]
        lines.append(f"| {one.model} | {hardware} | {one.tokens_per_second:,.0f} | {one.memory_gb:.3g} | {rate} |")
    return "\n".join(lines)


def results_of_speeds(speeds: Sequence[Speed]) -> Iterator[Result]:
    for one in speeds:
        facts = of_runs([one.folder])
        for metric, figure in (
            ("target tokens a second", round(one.tokens_per_second)),
            ("GB of memory a process", round(one.memory_gb, 2)),
        ):
            setting = "" if one.batches is None else f"batches of up to {one.batches:,} tokens"
            row = f"Transformer ({one.model})"
            yield Result("Speed of training", row, metric, ours=figure, setting=setting, **facts)


@dataclass(frozen=True)
class Pair:
    """Perplexities of the base model and of a row of Table 3, after the same number of updates."""

    update: int
    base: float
    row: float

    @classmethod
    def read(cls, folder: Path) -> Pair:
        base, row = (dict(RunRecord.read(folder / name).curve("valid", "ppl")) for name in (BASE, ROW))
        common = base.keys() & row.keys()
        if not common:
            raise DataError(
                f"{folder / BASE} and {folder / ROW} have no validation at the same update; give throughput.sh more "
                f"HOURS, or validation.interval_updates=100"
            )
        last = max(common)
        return cls(int(last), base[last], row[last])

    def figures(self) -> Iterator[tuple[str, float, float]]:
        """Yield name, published perplexity and measured perplexity of both rows."""
        for recipe, ours in (("base", self.base), (ROW, self.row)):
            row = next(row for row in ROWS if row.recipe == recipe)
            yield row.title, row.perplexity, ours

    def table(self) -> str:
        lines = [f"| perplexity after {self.update:,} updates | published, 100,000 updates | ours |", "|---|---|---|"]
        return "\n".join(
            [*lines, *(f"| {title} | {stated:.2f} | {ours:.2f} |" for title, stated, ours in self.figures())]
        )

    def results(self, folder: Path) -> Iterator[Result]:
        for (title, stated, ours), name in zip(self.figures(), (BASE, ROW)):
            facts = of_runs([folder / name]) | {"updates": self.update}
            setting = "the paper's size, newstest2013"
            yield Result(
                "Table 3", title, "perplexity", ours=round(ours, 2), published=stated, setting=setting, **facts
            )


def report(folder: Path, results: Path | None) -> None:
    runs = [folder / name for name in ("base", "big") if (folder / name).is_dir()]
    if not runs:
        raise MissingInputError(f"{folder} has neither base nor big: give the folder of throughput.sh")
    speeds = [Speed.read(run) for run in runs]
    print(table(speeds), flush=True)
    kept = [*results_of_speeds(speeds)]
    if (folder / ROW).is_dir():
        pair = Pair.read(folder)
        print(f"\n{pair.table()}", flush=True)
        kept += pair.results(folder)
    if results is not None:
        add_all(results, kept)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Write text to measure training speed with, and report the measurements."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    text = commands.add_parser("invent", help="write sentences of invented words")
    text.add_argument("folder", type=Path, help="folder for train.en and train.de")
    text.add_argument("--pairs", type=int, default=200_000, help="number of sentence pairs (200000)")
    text.add_argument("--words", type=int, default=37_000, help="number of different words (37000)")
    shown = commands.add_parser("report", help="print speed, memory and perplexities")
    shown.add_argument("folder", type=Path, help="output folder of throughput.sh")
    shown.add_argument("--results", type=Path, help="file of results (JSON) for the figures")
    given = parser.parse_args(arguments)
    try:
        if given.command == "report":
            report(given.folder, given.results)
            return
        if given.pairs < 1 or given.words < 1:
            raise UsageError(f"--pairs {given.pairs} --words {given.words} makes no text; give 1 or more of each")
        invent(given.folder, given.pairs, given.words)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

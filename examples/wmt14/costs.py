"""Table 2 of "Attention Is All You Need": BLEU and training cost, published and ours.

    python examples/wmt14/costs.py                                               counted from the models
    python examples/wmt14/costs.py runs/wmt14/en-de/base runs/wmt14/en-de/big    finished runs of run.sh

Nothing is trained. A run has two figures of its operations: counted from the model, and estimated from its time as in
the paper. The estimate needs the rate of the device (--device-tflops of nmt-train). Without a run, the script counts
the operations per target token on sentences of --length tokens, and multiplies them by the paper's 25,000 target
tokens per update. --tflops and --devices then forecast the hours of training; examples/forecast.py explains the
assumed rate. --results stores the figures in a file, see examples/results.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from forecast import ASSUMED_TFLOPS, add_rate, check_rate, hours, operations_per_token, written
from results import Result, add_all
from results import of_runs as facts_of_runs
from results_page import OTHERS

from nmt.errors import DataError, NMTError, UsageError
from nmt.interface import VocabularySizes
from nmt.progress import going_on
from nmt.reporting.run_record import RunRecord
from nmt.storage.reading import read_json
from nmt.testing.subjects import load_preset
from nmt.training.setup.operations import SUSTAINED_TFLOPS

TOKENS = 25_000  # target tokens per update
SEARCH = "newstest2014, beam 4, alpha 0.6"


@dataclass(frozen=True)
class Row:
    """A row of the table: published BLEU and operations, by language pair."""

    name: str
    bleu: dict[str, float]
    flops: dict[str, float]


DE, FR = "en-de", "en-fr"
PUBLISHED = (
    Row("ByteNet", {DE: 23.75}, {}),
    Row("Deep-Att + PosUnk", {FR: 39.2}, {FR: 1.0e20}),
    Row("GNMT + RL", {DE: 24.6, FR: 39.92}, {DE: 2.3e19, FR: 1.4e20}),
    Row("ConvS2S", {DE: 25.16, FR: 40.46}, {DE: 9.6e18, FR: 1.5e20}),
    Row("MoE", {DE: 26.03, FR: 40.56}, {DE: 2.0e19, FR: 1.2e20}),
    Row("Deep-Att + PosUnk, ensemble", {FR: 40.4}, {FR: 8.0e20}),
    Row("GNMT + RL, ensemble", {DE: 26.30, FR: 41.16}, {DE: 1.8e20, FR: 1.1e21}),
    Row("ConvS2S, ensemble", {DE: 26.36, FR: 41.29}, {DE: 7.7e19, FR: 1.2e21}),
    Row("Transformer (base)", {DE: 27.3, FR: 38.1}, {DE: 3.3e18, FR: 3.3e18}),
    Row("Transformer (big)", {DE: 28.4, FR: 41.8}, {DE: 2.3e19, FR: 2.3e19}),
)


@dataclass(frozen=True)
class Experiment:
    """One of our models, with the paper's updates and hours of training on eight P100."""

    name: str
    preset: str
    updates: int
    hours: float

    @property
    def published(self) -> Row:
        return next(row for row in PUBLISHED if row.name == self.name)

    @property
    def by_time(self) -> float:
        """Operations by the paper's formula: time x devices x sustained rate."""
        return self.hours * 3600 * 8 * SUSTAINED_TFLOPS["P100"] * 1e12


EXPERIMENTS = {
    "base": Experiment("Transformer (base)", "transformer_base", 100_000, 12),
    "big": Experiment("Transformer (big)", "transformer_big", 300_000, 84),
}
PIECES = {DE: 37_000, FR: 32_000}


def counted(experiment: Experiment, pieces: int, length: int) -> float:
    """Return the training operations per target token on sentences of ``length`` tokens."""
    sizes = VocabularySizes(pieces, pieces, shared=True)
    return operations_per_token(load_preset(experiment.preset), sizes, length, length)


@dataclass(frozen=True)
class Rate:
    """Number of devices, and the rate that each sustains in 10^12 operations per second."""

    tflops: float
    devices: int

    def __str__(self) -> str:
        return f"{self.tflops:g} TFLOPS" + (f" on each of {self.devices} devices" if self.devices > 1 else "")

    def hours(self, experiment: Experiment, count: float) -> str:
        """Return the hours of training with ``count`` operations per target token."""
        return written(hours(count * TOKENS * experiment.updates, self.tflops, self.devices))


@dataclass(frozen=True)
class Run:
    """Scores and training of an output folder of run.sh."""

    experiment: Experiment
    pair: str
    folder: Path
    scores: dict[str, dict[str, Any]]  # by metric
    end: dict[str, Any]  # the last event of training

    @classmethod
    def read(cls, folder: Path) -> Run:
        named = Path(os.path.abspath(folder))  # resolve() would lose the name of a symbolic link
        model, pair = named.name, named.parent.name
        if model not in EXPERIMENTS or pair not in PIECES:
            raise UsageError(f"{folder} is not a folder of run.sh; name one such as runs/wmt14/en-de/base (PAIR/MODEL)")
        end = dict(RunRecord.read(folder / "run").last("train", "end"))
        if end.get("event") != "end":
            raise DataError(f"{folder / 'run'} has not ended: train it to its end first")
        return cls(EXPERIMENTS[model], pair, folder, read_scores(folder / "score.json"), end)


def read_scores(file: Path) -> dict[str, dict[str, Any]]:
    """Return the scores by metric; an empty mapping if the file does not exist."""
    if not file.exists():
        return {}
    try:
        return {
            score["metric"]: {"score": float(score["score"]), "signature": str(score["signature"])}
            for score in read_json(file)["scores"]
        }
    except (DataError, LookupError, TypeError, ValueError) as error:
        raise DataError(f"{file} is not output of nmt-score --format json; remove it and run run.sh again") from error


def table(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def power(operations: float, digits: int = 2) -> str:
    """Format operations as in the paper: 3.3e18."""
    return f"{operations:.{digits - 1}e}".replace("e+", "e").replace("e0", "e")


def published() -> str:
    head = ["as published", "BLEU En-De", "BLEU En-Fr", "FLOPs En-De", "FLOPs En-Fr"]
    rows = []
    for row in PUBLISHED:
        bleu = [f"{row.bleu[pair]:g}" if pair in row.bleu else "" for pair in PIECES]
        rows.append([row.name, *bleu, *(power(row.flops[pair]) if pair in row.flops else "" for pair in PIECES)])
    return table([head, ["---"] * len(head), *rows])


def of_counts(counts: dict[tuple[str, str], float], rate: Rate) -> str:
    """Return the table of counts. ``counts``: operations per target token, by model and language pair."""
    head = [
        "counted, not trained",
        "updates",
        "operations a target token",
        "FLOPs counted",
        "by the paper's time",
        "published",
        f"hours at {rate}",
    ]
    rows = []
    for (model, pair), count in counts.items():
        experiment = EXPERIMENTS[model]
        figures = (power(count, 3), power(count * TOKENS * experiment.updates, 3), power(experiment.by_time, 3))
        stated = power(experiment.published.flops[pair])
        time = rate.hours(experiment, count)
        rows.append([f"{experiment.name}, {pair}", f"{experiment.updates:,}", *figures, stated, time])
    return table([head, ["---"] * len(head), *rows])


def of_runs(runs: Sequence[Run]) -> str:
    head = [
        "our runs",
        "BLEU (paper's)",
        "published",
        "sacreBLEU",
        "updates",
        "FLOPs counted",
        "estimated",
        "published",
    ]
    rows = []
    for run in runs:
        scores = [f"{run.scores[name]['score']:.2f}" if name in run.scores else "" for name in ("paper_bleu", "bleu")]
        flops = [run.end.get(name) for name in ("flops_counted", "flops_estimated")]
        stated = run.experiment.published
        cells = [scores[0], f"{stated.bleu[run.pair]:g}", scores[1], f"{run.end['update']:,}"]
        cells += ["" if one is None else power(one, 3) for one in flops]
        rows.append([f"{run.experiment.name}, {run.pair}", *cells, power(stated.flops[run.pair])])
    return table([head, ["---"] * len(head), *rows])


def results_of_others() -> Iterator[Result]:
    """Yield the published figures of the systems that the paper compares with."""
    for row in [row for row in PUBLISHED if not row.name.startswith("Transformer")]:
        for metric, figures in (("BLEU (paper's)", row.bleu), ("training FLOPs", row.flops)):
            for pair, figure in figures.items():
                yield Result("Table 2", f"{row.name}, {pair}", metric, published=figure, setting=OTHERS)


def results_of_counts(counts: dict[tuple[str, str], float], length: int, rate: Rate) -> Iterator[Result]:
    """Yield the counted operations, and the published scores as not run."""
    for (model, pair), count in counts.items():
        experiment = EXPERIMENTS[model]
        row, stated = f"{experiment.name}, {pair}", experiment.published
        one = " (one A100)" if rate == Rate(ASSUMED_TFLOPS, 1) else ""
        forecast = f"{SEARCH}; forecast: {rate.hours(experiment, count)} hours of training at {rate}{one}"
        yield Result("Table 2", row, "BLEU (paper's)", published=stated.bleu[pair], setting=forecast)
        yield Result(
            "Table 2",
            row,
            "training FLOPs, counted from the model",
            ours=float(f"{count * TOKENS * experiment.updates:.3g}"),
            published=stated.flops[pair],
            setting=f"not trained: {experiment.updates:,} updates of {TOKENS:,} target tokens, {length} tokens a sentence; "
            f"published is time x devices x rate",
        )


def results_of_runs(runs: Sequence[Run]) -> Iterator[Result]:
    for run in runs:
        row, stated = f"{run.experiment.name}, {run.pair}", run.experiment.published
        facts = facts_of_runs([run.folder / "run"])
        for metric, name in (("paper_bleu", "BLEU (paper's)"), ("bleu", "sacreBLEU")):
            if metric in run.scores:
                score, same = run.scores[metric], metric == "paper_bleu"
                yield Result(
                    "Table 2",
                    row,
                    name,
                    ours=round(score["score"], 2),
                    published=stated.bleu[run.pair] if same else None,
                    comparable=same,
                    setting=SEARCH,
                    signature=score["signature"],
                    **facts,
                )
        for key, name in (("flops_counted", "counted"), ("flops_estimated", "estimated")):
            if run.end.get(key) is not None:
                ours, given = float(f"{run.end[key]:.3g}"), stated.flops[run.pair]
                yield Result("Table 2", row, f"training FLOPs, {name}", ours=ours, published=given, **facts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print Table 2 as published, and ours.")
    parser.add_argument("runs", type=Path, nargs="*", help="output folders of run.sh, such as runs/wmt14/en-de/base")
    parser.add_argument("--length", type=int, default=30, help="length of the sentences for the count in tokens (30)")
    add_rate(parser)
    parser.add_argument("--results", type=Path, help="file of results (JSON) for the figures")
    given = parser.parse_args(arguments)
    if given.length < 2:
        parser.error(f"--length {given.length} leaves no room for a token and the end of a sentence; give 2 or more")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        check_rate(given.tflops, given.devices)
        runs, rate = [Run.read(folder) for folder in given.runs], Rate(given.tflops, given.devices)
        with going_on("counting operations"):
            counts = {} if runs else count_all(given.length)
        print(published())
        print(of_runs(runs) if runs else of_counts(counts, rate), end="", flush=True)
        if given.results is not None:
            counts_and_others = [*results_of_others(), *results_of_counts(counts, given.length, rate)]
            add_all(given.results, results_of_runs(runs) if runs else counts_and_others)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


def count_all(length: int) -> dict[tuple[str, str], float]:
    """Return the operations per target token, by model and language pair."""
    return {
        (model, pair): counted(experiment, PIECES[pair], length)
        for pair in PIECES
        for model, experiment in EXPERIMENTS.items()
    }


if __name__ == "__main__":
    main()

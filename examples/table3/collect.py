"""Collect the scores of the reduced rows of Table 3: a table on standard output, a picture, and a file of results.

    python examples/table3/collect.py runs/table3/runs runs/table3

Reads the sweep of run.sh, and writes ``runs.json``, ``results.json`` and ``images/table3.svg`` into the last folder.
Perplexity per token and BLEU are from the last validation of each run, on the development set as in the paper. Runs in
an existing ``runs.json`` stay, so that several machines can train the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Facts, Result, add_all, facts_of, together
from rows import ROWS, Row

from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.reporting.run_record import RunRecord
from nmt.storage.files import atomic_write, explained_os_errors
from nmt.storage.reading import read_json

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"  # of sacreBLEU, without its version
RECIPES = [row.recipe for row in ROWS]
SETTING = "Multi30k, an eighth of the widths, half of the layers"


@dataclass(frozen=True)
class Run:
    """The scores of one training run of a row."""

    recipe: str
    seed: int
    perplexity: float
    bleu: float
    sacrebleu: str  # version
    facts: Facts


def read(sweep: Path) -> list[Run]:
    """Return the scores of the finished runs of a sweep."""
    records = sweep / "sweep.jsonl"
    if not records.is_file():
        raise MissingInputError(f"{sweep} has no sweep.jsonl: give the --save-dir of the sweep that run.sh starts")
    found: dict[str, str] = {}
    for line in filter(
        None, records.read_text(encoding="utf-8").split("\n")
    ):  # splitlines() would also split at other separators inside texts
        try:
            record = json.loads(line)
            chosen, folder, status = " ".join(record["overrides"]), record["folder"], record["status"]
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"{records} is damaged: this line is not a record of a run: {line}") from error
        recipe = re.search(r"recipe=table3_(\w+)", chosen)
        if recipe and recipe[1] in RECIPES and status == "finished":
            found[folder] = recipe[1]
    return [_read_run(sweep / folder, recipe) for folder, recipe in found.items()]


def _read_run(folder: Path, recipe: str) -> Run:
    record = RunRecord.read(folder)
    if "seed" not in record.config:
        raise DataError(f"{folder} has no config.yaml with its seed; remove the folder and run run.sh again")
    last = next((event for event in reversed(record.of("valid")) if "bleu" in event), None)
    if last is None:
        raise DataError(
            f"{folder} has no validation with BLEU in its log.jsonl: train with a recipe of examples/table3/miniatures"
        )
    if not isinstance(last["ppl"], float) or not math.isfinite(last["ppl"]):  # JSON has no NaN: the log has null
        raise DataError(f"{folder} diverged: its perplexity is not a number; remove the folder and run run.sh again")
    sacrebleu = str(record.last("start").get("environment", {}).get("sacrebleu", ""))
    return Run(recipe, record.config["seed"], last["ppl"], last["bleu"], sacrebleu, facts_of(folder))


def collected(file: Path, new: Sequence[Run]) -> list[Run]:
    """Return the runs of a file and new ones in table order. A new run replaces the one of its row and seed."""
    runs = {(run.recipe, run.seed): run for run in [*_kept(file), *new]}
    return sorted(runs.values(), key=lambda run: (RECIPES.index(run.recipe), run.seed))


def _kept(file: Path) -> list[Run]:
    if not file.exists():
        return []
    try:
        runs = [Run(**entry | {"facts": Facts(**entry["facts"])}) for entry in read_json(file)]
        return [run for run in runs if run.recipe in RECIPES]
    except (DataError, LookupError, TypeError) as error:
        raise DataError(f"{file} is not a file of runs that collect.py wrote: {error}") from error


def write(file: Path, runs: Sequence[Run]) -> None:
    """Write the runs as JSON, one per line."""
    with explained_os_errors(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(asdict(run)) for run in runs)
    with atomic_write(file) as opened:
        opened.write(f"[\n{lines}\n]\n".encode())


def by_row(runs: Sequence[Run]) -> list[tuple[Row, list[Run]]]:
    """Return the rows that have runs, in the order of the table."""
    return [(row, chosen) for row in ROWS if (chosen := [run for run in runs if run.recipe == row.recipe])]


def mean(runs: Sequence[Run], name: str) -> float:
    return statistics.fmean(getattr(run, name) for run in runs)


def spread(runs: Sequence[Run], name: str) -> float | None:
    """Return the standard deviation over the runs; None for one run."""
    return statistics.stdev(getattr(run, name) for run in runs) if len(runs) > 1 else None


def table(runs: Sequence[Run]) -> str:
    """Return the table in Markdown. Differences are to the base row, in the paper and in our runs."""
    published = next(row.bleu for row in ROWS if row.recipe == "base")
    base = [run for run in runs if run.recipe == "base"]
    lines = [
        "| row | change | perplexity, paper | ours | BLEU, paper | ours | BLEU less base, paper | ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, ours in by_row(runs):
        cells = (
            row.part,
            row.says,
            f"{row.perplexity:.2f}",
            _says(ours, "perplexity"),
            f"{row.bleu:.1f}",
            _says(ours, "bleu"),
            f"{row.bleu - published:+.1f}",
            f"{mean(ours, 'bleu') - mean(base, 'bleu'):+.2f}" if base else "",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _says(runs: Sequence[Run], name: str) -> str:
    deviation = spread(runs, name)
    return f"{mean(runs, name):.2f}" + ("" if deviation is None else f" \u00b1 {deviation:.2f}")


def draw(runs: Sequence[Run], output: Path) -> None:
    """Draw a dot for each run, a bar for the mean of a row, and a line at the mean of the base model."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise UsageError("the picture needs matplotlib: pip install '.[plots]' in the clone") from None
    rows = by_row(runs)[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(10, 0.8 + 0.32 * len(rows)), sharey=True, layout="constrained")
    for axis, name, title in zip(axes, ("bleu", "perplexity"), ("BLEU", "perplexity per token")):
        for place, (row, ours) in enumerate(rows):
            axis.plot(
                [getattr(run, name) for run in ours], [place] * len(ours), "o", color="#2563b8", markersize=4, alpha=0.7
            )
            axis.plot([mean(ours, name)] * 2, [place - 0.3, place + 0.3], color="#d1661c", linewidth=2)
            if row.recipe == "base":
                axis.axvline(mean(ours, name), color="#4a515b", linewidth=0.8, linestyle=":")
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [row.title for row, _ in rows])
    axes[0].set_ylim(-0.6, len(rows) - 0.4)
    with explained_os_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(output)
    plt.close(figure)


def results(runs: Sequence[Run]) -> Iterator[Result]:
    """Yield perplexity and BLEU of each row, with the published figures."""
    for row, ours in by_row(runs):
        versions = sorted({run.sacrebleu for run in ours if run.sacrebleu})
        for metric, name, published, signature in (
            ("perplexity", "perplexity", row.perplexity, ""),
            ("BLEU, development set", "bleu", row.bleu, SIGNATURE + " and ".join(versions) if versions else ""),
        ):
            deviation = spread(ours, name)
            yield Result(
                "Table 3",
                row.title,
                metric,
                ours=float(f"{mean(ours, name):.4g}"),
                spread=None if deviation is None else float(f"{deviation:.2g}"),
                runs=len(ours),
                published=published,
                setting=SETTING,
                signature=signature,
                **together([run.facts for run in ours]),
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Collect the scores of the reduced rows of Table 3.")
    parser.add_argument("sweep", type=Path, help="folder of the sweep: the --save-dir of nmt-train in run.sh")
    parser.add_argument("output", type=Path, help="folder for runs.json, results.json and images/table3.svg")
    given = parser.parse_args(arguments)
    try:
        new = read(given.sweep)
        if not new:
            raise DataError(f"{given.sweep} has no finished run of a row of Table 3; run.sh resumes the sweep")
        runs = collected(given.output / "runs.json", new)
        print(table(runs), flush=True)
        write(given.output / "runs.json", runs)
        picture = Result("Table 3", "all rows", "picture", picture="images/table3.svg", setting=SETTING)
        add_all(given.output / "results.json", [*results(runs), picture])
        draw(runs, given.output / picture.picture)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

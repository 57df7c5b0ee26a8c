"""What the reduced rows of Table 3 reached: a table on standard output, a picture, and a file of results.

    python examples/table3/collect.py runs/table3/runs runs/table3

reads the sweep of run.sh and writes ``results.json`` and ``images/table3.svg`` into the last folder. Perplexity per
piece and BLEU are those of the last validation of each run: as in the paper, of the development set.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Result, add_all, of_runs
from rows import ROWS, Row

from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.reporting.run_record import RunRecord

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"  # of sacreBLEU, and its version
SETTING = "Multi30k, an eighth of the widths, half of the layers"


@dataclass
class Runs:
    """What the seeds of a row reached."""

    folders: list[Path] = field(default_factory=list)
    perplexity: list[float] = field(default_factory=list)
    bleu: list[float] = field(default_factory=list)
    sacrebleu: str = ""  # its version

    def says(self, name: str) -> str:
        values = getattr(self, name)
        spread = f" \u00b1 {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{spread}"


def read(sweep: Path) -> dict[str, Runs]:
    """By recipe, what the finished runs of a sweep reached."""
    records = sweep / "sweep.jsonl"
    if not records.is_file():
        raise MissingInputError(f"{sweep} has no sweep.jsonl: give the --save-dir of the sweep that run.sh starts")
    found: dict[str, dict[str, Path]] = {}
    for line in records.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
            chosen, folder, status = " ".join(record["overrides"]), record["folder"], record["status"]
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"{records} is damaged: this line is no record of a run: {line}") from error
        recipe = re.search(r"recipe=table3_(\w+)", chosen)
        if recipe and status == "finished":
            found.setdefault(recipe[1], {})[folder] = sweep / folder
    runs: dict[str, Runs] = {}
    for name, folders in found.items():
        runs[name] = Runs()
        for folder in folders.values():
            _read_run(folder, runs[name])
    return runs


def _read_run(folder: Path, into: Runs) -> None:
    record = RunRecord.read(folder)
    last = next((event for event in reversed(record.of("valid")) if "bleu" in event), None)
    if last is None:
        raise DataError(
            f"{folder} has no validation with BLEU in its log.jsonl: train with a recipe of examples/table3/miniatures"
        )
    if not isinstance(last["ppl"], float) or not math.isfinite(last["ppl"]):  # JSON has no NaN: it is null there
        raise DataError(f"{folder} diverged: its perplexity is no number. Remove the folder and run run.sh again")
    into.folders.append(folder)
    into.perplexity.append(last["ppl"])
    into.bleu.append(last["bleu"])
    into.sacrebleu = str(record.last("start").get("environment", {}).get("sacrebleu", ""))


def table(runs: Mapping[str, Runs]) -> str:
    """In Markdown; the differences are those to the base row, the paper's and ours."""
    base = next(row for row in ROWS if row.recipe == "base")
    lines = [
        "| row | change | perplexity, paper | ours | BLEU, paper | ours | BLEU less base, paper | ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in _present(runs):
        ours = runs[row.recipe]
        less = ""
        if "base" in runs:
            less = f"{statistics.fmean(ours.bleu) - statistics.fmean(runs['base'].bleu):+.2f}"
        cells = (
            row.part,
            row.says,
            f"{row.perplexity:.2f}",
            ours.says("perplexity"),
            f"{row.bleu:.1f}",
            ours.says("bleu"),
        )
        lines.append("| " + " | ".join((*cells, f"{row.bleu - base.bleu:+.1f}", less)) + " |")
    return "\n".join(lines)


def _present(runs: Mapping[str, Runs]) -> list[Row]:
    return [row for row in ROWS if row.recipe in runs]


def draw(runs: Mapping[str, Runs], output: Path) -> None:
    """A dot for each run, a bar for the mean of a row, and a line where the base model stands."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise UsageError("the picture needs matplotlib: pip install '.[plots]' in the clone") from None
    rows = _present(runs)[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(10, 0.8 + 0.32 * len(rows)), sharey=True, layout="constrained")
    for axis, name, title in zip(axes, ("bleu", "perplexity"), ("BLEU", "perplexity per piece")):
        for place, row in enumerate(rows):
            values = getattr(runs[row.recipe], name)
            axis.plot(values, [place] * len(values), "o", color="#2563b8", markersize=4, alpha=0.7)
            axis.plot([statistics.fmean(values)] * 2, [place - 0.3, place + 0.3], color="#d1661c", linewidth=2)
        if "base" in runs:
            axis.axvline(statistics.fmean(getattr(runs["base"], name)), color="#4a515b", linewidth=0.8, linestyle=":")
        axis.set_title(title)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [row.title for row in rows])
    axes[0].set_ylim(-0.6, len(rows) - 0.4)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output)
    plt.close(figure)


def results(runs: Mapping[str, Runs]) -> Iterator[Result]:
    """Each row's perplexity and BLEU, beside the paper's."""
    for row in _present(runs):
        ours = runs[row.recipe]
        signature = SIGNATURE + ours.sacrebleu if ours.sacrebleu else ""
        for metric, values, published, signed in (
            ("perplexity", ours.perplexity, row.perplexity, ""),
            ("BLEU, development set", ours.bleu, row.bleu, signature),
        ):
            yield Result(
                "Table 3",
                row.title,
                metric,
                ours=float(f"{statistics.fmean(values):.4g}"),
                spread=float(f"{statistics.stdev(values):.2g}") if len(values) > 1 else None,
                runs=len(values),
                published=published,
                setting=SETTING,
                signature=signed,
                **of_runs(ours.folders),
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Collect what the reduced rows of Table 3 reached.")
    parser.add_argument("sweep", type=Path, help="folder of the sweep: the --save-dir of run.sh's nmt-train")
    parser.add_argument("output", type=Path, help="folder for results.json and images/table3.svg")
    given = parser.parse_args(arguments)
    try:
        runs = read(given.sweep)
        if not runs:
            raise DataError(f"{given.sweep} has no finished run of a row of Table 3; run.sh goes on with the sweep")
        print(table(runs), flush=True)
        picture = Result("Table 3", "all rows", "picture", picture="images/table3.svg", setting=SETTING)
        add_all(given.output / "results.json", [*results(runs), picture])
        draw(runs, given.output / picture.picture)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

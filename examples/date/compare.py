"""Validation exact match per epoch of several runs, in one picture.

    python examples/date/compare.py comparison.svg lstm_plain lstm_peeky lstm_attention

The runs are named after their folders, or by ``--rows``. With ``--results FILE`` the exact match after some epochs is kept
there too, as examples/results.py keeps figures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nmt
from nmt.errors import NMTError, UsageError
from nmt.plotting import plot_comparison
from nmt.reporting.run_record import read_events

RESULTS = Path(__file__).resolve().parents[1] / "results.py"


def kept(arguments: argparse.Namespace, runs: Mapping[str, Path]) -> int:
    """Keep the figures of all runs, by their rows; the exit status of the script that does it, 0 if all went well."""
    published = {(row, int(epoch)): figure for row, epoch, figure in arguments.published}
    common = ["--experiment", arguments.experiment, "--setting", arguments.setting]
    common += ["--signature", nmt.score(["a"], ["a"], metrics=["exact"])["exact"].score.signature]
    for row, run in runs.items():
        exact = {event["epoch"]: event["exact"] for event in read_events(run / "log.jsonl") if "exact" in event}
        for epoch in sorted({*arguments.epochs, max(exact)} & exact.keys()):
            command = [sys.executable, str(RESULTS), "add", str(arguments.results), *common, "--row", row]
            command += ["--metric", f"exact match in per cent after epoch {epoch}", "--ours", f"{exact[epoch]:.2f}"]
            command += ["--published", published[row, epoch]] if (row, epoch) in published else []
            if status := subprocess.run([*command, "--run", str(run)], check=False).returncode:
                return status
    return 0


def named(arguments: argparse.Namespace) -> dict[str, Path]:
    """The runs by their rows."""
    rows = arguments.rows or [run.name for run in arguments.run]
    if len(rows) != len(arguments.run):
        raise UsageError(f"--rows has {len(rows)} names for {len(arguments.run)} runs; give one for each")
    if unknown := [row for row, *_ in arguments.published if row not in rows]:
        raise UsageError(f"--published names a row that is none: '{unknown[0]}'; the rows are {', '.join(rows)}")
    return dict(zip(rows, arguments.run))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Draw the validation exact match of several runs by epoch.")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    parser.add_argument("run", type=Path, nargs="+", help="run folders of nmt-train, with --valid-metrics exact")
    parser.add_argument("--title", default="Date task, exact match in per cent", help="title of the picture")
    parser.add_argument("--rows", nargs="+", help="what the runs are called, one name each; default: their folders")
    parser.add_argument("--results", type=Path, help="file of results to keep the figures in")
    parser.add_argument("--experiment", default="Textbook: dates", help="what they are kept as")
    parser.add_argument("--setting", default="", help="data and sizes, in a few words")
    parser.add_argument(
        "--epochs", type=int, nargs="+", default=[1, 2], help="epochs whose figures are kept, besides the last (1 2)"
    )
    parser.add_argument(
        "--published",
        nargs=3,
        action="append",
        default=[],
        metavar=("ROW", "EPOCH", "FIGURE"),
        help="what was published for a row after an epoch; may be given several times",
    )
    arguments = parser.parse_args()
    for _, epoch, figure in arguments.published:
        if not (epoch.isdecimal() and figure.replace(".", "", 1).isdecimal()):
            parser.error(f"--published: an epoch and a figure are two numbers, not {epoch} and {figure}")
    return arguments


def main() -> None:
    arguments = parsed()
    try:
        runs = named(arguments)
        logs = {row: run / "log.jsonl" for row, run in runs.items()}
        plot_comparison(logs, "exact", arguments.picture, title=arguments.title)
        status = kept(arguments, runs) if arguments.results else 0
    except NMTError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    if status:
        sys.exit(status)
    print(f"comparison: {arguments.picture}")


if __name__ == "__main__":
    main()

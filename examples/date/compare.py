"""Validation exact match per epoch of several runs, in one picture.

    python examples/date/compare.py comparison.svg lstm_plain lstm_peeky lstm_attention

The runs are named after their folders. With ``--results FILE`` the exact match after the first, the second and the last
epoch is kept there too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from nmt.errors import NMTError
from nmt.plotting import plot_comparison

RESULTS = Path(__file__).resolve().parents[1] / "results.py"


def keep(file: Path, experiment: str, run: Path) -> None:
    """The exact match after epochs 1 and 2 and the last one."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    exact = {event["epoch"]: event["exact"] for event in events if event["event"] == "valid"}
    for epoch in sorted({1, 2, max(exact)} & exact.keys()):
        command = [sys.executable, str(RESULTS), "add", str(file), "--experiment", experiment, "--row", run.name]
        command += ["--metric", f"exact match in per cent after epoch {epoch}", "--ours", f"{exact[epoch]:.2f}"]
        subprocess.run([*command, "--run", str(run)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the validation exact match of several runs by epoch.")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    parser.add_argument("run", type=Path, nargs="+", help="run folders of nmt-train, with --valid-metrics exact")
    parser.add_argument("--title", default="Date task, exact match in per cent", help="title of the picture")
    parser.add_argument("--results", type=Path, help="file of results to keep the figures in")
    parser.add_argument("--experiment", default="Textbook: dates", help="what they are kept as")
    arguments = parser.parse_args()
    logs = {run.name: run / "log.jsonl" for run in arguments.run}
    try:
        plot_comparison(logs, "exact", arguments.picture, title=arguments.title)
        for run in arguments.run if arguments.results else ():
            keep(arguments.results, arguments.experiment, run)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(f"comparison: {arguments.picture}")


if __name__ == "__main__":
    main()

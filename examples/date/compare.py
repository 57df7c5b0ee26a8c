"""Validation exact match per epoch of several runs, in one picture.

    python examples/date/compare.py comparison.svg lstm_plain lstm_peeky lstm_attention

The runs are named after their folders.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nmt.errors import NMTError
from nmt.plotting import plot_comparison


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the validation exact match of several runs by epoch.")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    parser.add_argument("run", type=Path, nargs="+", help="run folders of nmt-train, with --valid-metrics exact")
    parser.add_argument("--title", default="Date task, exact match in per cent", help="title of the picture")
    arguments = parser.parse_args()
    logs = {run.name: run / "log.jsonl" for run in arguments.run}
    try:
        plot_comparison(logs, "exact", arguments.picture, title=arguments.title)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(f"comparison: {arguments.picture}")


if __name__ == "__main__":
    main()

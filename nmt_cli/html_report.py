"""``python -m nmt_cli.html_report RUN ...``: the page ``report.html`` of finished, stopped or running runs, made anew."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nmt.errors import NMTError
from nmt.reporting.html_report import write
from nmt_cli.process import say, use_utf8


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m nmt_cli.html_report", description="Write report.html to run folders, from their logs"
    )
    parser.add_argument("run", nargs="+", type=Path, help="Run folder of nmt-train")
    use_utf8()
    for folder in parser.parse_args().run:
        try:
            print(write(folder))
        except NMTError as error:
            say(f"html_report: {error}")
            sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

"""Add the published figures of Table 4 of "Attention Is All You Need" to a file of results.

    python examples/parsing/published.py runs/parsing/results.json

The figures are F1 on section 23. Rows that were run stay unchanged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Result, add_all
from results_page import OTHERS

from nmt.errors import NMTError

F1 = {
    "Vinyals & Kaiser et al. (2014), WSJ only": 88.3,
    "Petrov et al. (2006), WSJ only": 90.4,
    "Zhu et al. (2013), WSJ only": 90.4,
    "Dyer et al. (2016), WSJ only": 91.7,
    "Transformer, WSJ only": 91.3,
    "Zhu et al. (2013), semi-supervised": 91.3,
    "Huang & Harper (2009), semi-supervised": 91.3,
    "McClosky et al. (2006), semi-supervised": 92.1,
    "Vinyals & Kaiser et al. (2014), semi-supervised": 92.1,
    "Transformer, semi-supervised": 92.7,
    "Luong et al. (2015), multi-task": 93.0,
    "Dyer et al. (2016), generative": 93.3,
}
SYSTEMS = ("Transformer", "Vinyals & Kaiser et al.")  # systems of this project


def result(row: str, f1: float) -> Result:
    return Result("Table 4", row, "F1", published=f1, setting="" if row.startswith(SYSTEMS) else OTHERS)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Add the published rows of Table 4 to a file of results.")
    parser.add_argument("file", type=Path, help="file of results (JSON)")
    given = parser.parse_args(arguments)
    try:
        add_all(given.file, [result(row, f1) for row, f1 in F1.items()])
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

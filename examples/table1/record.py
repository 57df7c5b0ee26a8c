"""Store Table 1 in a file of results: the measurements and the counts of ``benchmarks/complexity.py``.

    python examples/table1/record.py benchmarks/results/complexity.csv results.json

Each figure is the exponent b of a cost that grows as length^b.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples")]

from complexity import (  # noqa: E402  (neither folder is a package)
    COUNTED,
    FITTED_FROM,
    KINDS,
    TIMED,
    exponent,
    layers_until_all_is_seen,
    sequential_operations,
)
from results import Result, add_all, hardware  # noqa: E402

from nmt.errors import DataError, MissingInputError, NMTError  # noqa: E402

SETTING = f"64 channels, one sequence of {FITTED_FROM:,} to 4,096 positions"
FUSED = (
    "self-attention"  # another kernel computes long sequences, so that a count that falls with the length means nothing
)
GROWS = {"1": 0.0, "n": 1.0, "n / k": 1.0, "n / r": 1.0}  # power of n; log_k n has none


def timed(file: Path) -> Iterator[Result]:
    """Yield the growth of each layer's time, in a forward and a backward pass."""
    if not file.is_file():
        raise MissingInputError(f"{file} is missing: run benchmarks/complexity.py first")
    try:
        with open(file, encoding="utf-8", newline="") as opened:
            lines = [
                (line["layer"], int(line["length"]), float(line["forward_and_backward_seconds"]))
                for line in csv.DictReader(opened)
            ]
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        raise DataError(f"{file} is not a file of benchmarks/complexity.py: run it again") from error
    for kind in TIMED:
        fitted = [(length, seconds) for name, length, seconds in lines if name == kind.name and length >= FITTED_FROM]
        if len(fitted) < 2:
            raise DataError(f"{file} has no times of {kind.name} at two lengths of {FITTED_FROM} or more")
        lengths, seconds = zip(*fitted)
        yield Result(
            "Table 1",
            kind.name,
            f"time of a layer, of order {kind.order}: power of n",
            ours=round(exponent(lengths, seconds), 2),
            published=float(kind.theory),
            comparable=True,
            setting=SETTING,
            hardware=hardware(),
        )


def counted() -> Iterator[Result]:
    """Yield the growth of each layer's longest chain of operations, and of its longest path between two positions."""
    lengths = f"counted at {COUNTED[0]} to {COUNTED[-1]} positions"
    for kind in KINDS:
        fused = kind.name == FUSED
        setting = f"{lengths}; from 256 on the kernel does in one operation what took several" if fused else lengths
        chain = [sequential_operations(kind, length) for length in COUNTED]
        path = [layers_until_all_is_seen(kind, length) * one for length, one in zip(COUNTED, chain)]
        for metric, order, counts in (
            ("sequential operations", kind.sequential, chain),
            ("longest path", kind.path, path),
        ):
            published = GROWS.get(order)
            yield Result(
                "Table 1",
                kind.name,
                f"{metric}, of order {order}: power of n",
                ours=round(exponent(COUNTED, counts), 2) + 0.0,  # no -0.0
                published=published,
                comparable=published is not None and not fused,
                setting=setting,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Store measurements and counts of benchmarks/complexity.py as results."
    )
    parser.add_argument("measured", type=Path, help="complexity.csv of the benchmark")
    parser.add_argument("results", type=Path, help="file of results (JSON) for the figures")
    given = parser.parse_args(arguments)
    try:
        add_all(given.results, [*timed(given.measured), *counted()])
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

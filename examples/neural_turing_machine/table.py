"""Report bit errors and exact sequences of several systems by length, as a table and a picture.

    python examples/neural_turing_machine/table.py copy --systems ntm,lstm --lengths 10,20,40

Reads copy/text/test.LENGTH.tgt and copy/SYSTEM/test.LENGTH.hypotheses, and writes copy/table.md and copy/table.png. A
bit error is a wrong bit. Every bit of a missing or surplus vector counts as wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, quantity
from nmt.storage.files import atomic_write


@dataclass(frozen=True)
class Result:
    """Errors of a system on the test set of one length."""

    length: int
    bit_errors: float  # mean per sequence
    exact: float  # share of sequences without errors in %


def bit_errors(hypothesis: str, reference: str) -> int:
    """Return the number of wrong bits in a line."""
    pairs = zip_longest(hypothesis.split(), reference.split(), fillvalue="")
    return sum(a != b for ours, theirs in pairs for a, b in zip_longest(ours, theirs, fillvalue=None))


def result(length: int, hypotheses: Sequence[str], references: Sequence[str]) -> Result:
    if len(hypotheses) != len(references):
        found = quantity(len(hypotheses), "hypothesis", "hypotheses")
        raise DataError(f"length {length}: {found} for {quantity(len(references), 'reference')}")
    if not references:
        raise DataError(f"length {length}: the test set is empty")
    errors = [bit_errors(*pair) for pair in zip(hypotheses, references)]
    return Result(length, sum(errors) / len(errors), 100 * errors.count(0) / len(errors))


def lines(path: Path) -> list[str]:
    return [line or "" for line in Reading().lines(path)]


def table(results: dict[str, list[Result]]) -> str:
    """Return a Markdown table with a row per length and two columns per system."""
    names = list(results)
    head = ["length", *(f"{name}: {what}" for name in names for what in ("bit errors", "exact %"))]
    rows = [head, ["---"] * len(head)]
    for of_length in zip(*results.values()):
        figures = (figure for each in of_length for figure in (f"{each.bit_errors:.2f}", f"{each.exact:.1f}"))
        rows.append([str(of_length[0].length), *figures])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def draw(results: dict[str, list[Result]], output: Path) -> None:
    """Plot bit errors and exact sequences against length."""
    figure = Figure(figsize=(7.0, 6.0), dpi=150, layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for name, of_lengths in results.items():
        lengths = [each.length for each in of_lengths]
        upper.plot(lengths, [each.bit_errors for each in of_lengths], label=name, marker="o", markersize=4)
        lower.plot(lengths, [each.exact for each in of_lengths], label=name, marker="o", markersize=4)
    upper.set_ylabel("bit errors a sequence")
    upper.set_yscale("symlog", linthresh=0.1)
    upper.set_ylim(bottom=0.0)
    upper.legend()
    lower.set_ylabel("exact sequences, %")
    lower.set_ylim(0.0, 105.0)
    lower.set_xlabel("length")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    with atomic_write(output) as file:
        FigureCanvasAgg(figure).print_figure(file, format="png")


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a table and a picture of bit errors by length.")
    parser.add_argument("folder", type=Path, help="folder with text/ and a folder of hypotheses for each system")
    parser.add_argument("--systems", required=True, help="names of these folders, separated by commas")
    parser.add_argument(
        "--lengths",
        type=numbers,
        required=True,
        metavar="LENGTHS",
        help="lengths of the test sets, separated by commas",
    )
    arguments = parser.parse_args()
    try:
        results = {
            system: [
                result(
                    length,
                    lines(arguments.folder / system / f"test.{length}.hypotheses"),
                    lines(arguments.folder / "text" / f"test.{length}.tgt"),
                )
                for length in arguments.lengths
            ]
            for system in arguments.systems.split(",")
        }
        text = table(results)
        with atomic_write(arguments.folder / "table.md") as file:
            file.write(text.encode())
        draw(results, arguments.folder / "table.png")
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(text, end="")


if __name__ == "__main__":
    main()

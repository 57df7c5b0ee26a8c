"""Draw the validation exact match per epoch of several runs in one picture.

    python examples/date/compare.py comparison.svg lstm_plain lstm_peeky lstm_attention

Each run has the name of its folder, or a name of ``--rows``. ``--results FILE`` also stores the exact match after some
epochs (``--epochs``), in the format of examples/results.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Result, add_all, of_runs

import nmt
from nmt.errors import NMTError, UsageError, quantity
from nmt.plotting import plot_comparison
from nmt.reporting.run_record import read_events


def results(arguments: argparse.Namespace, runs: Mapping[str, Path]) -> Iterator[Result]:
    """Yield the results of all runs. ``runs``: run folders by row name."""
    published = {(row, int(epoch)): float(figure) for row, epoch, figure in arguments.published}
    signature = nmt.score(["a"], ["a"], metrics=["exact"])["exact"].score.signature
    for row, run in runs.items():
        exact = {event["epoch"]: event["exact"] for event in read_events(run / "log.jsonl") if "exact" in event}
        for epoch in sorted({*arguments.epochs, max(exact)} & exact.keys()):
            yield Result(
                arguments.experiment,
                row,
                f"exact match, % after epoch {epoch}",
                ours=round(exact[epoch], 2),
                published=published.get((row, epoch)),
                setting=arguments.setting,
                signature=signature,
                **of_runs([run]),
            )


def named(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the run folders by row name."""
    rows = arguments.rows or [run.name for run in arguments.run]
    if len(rows) != len(arguments.run):
        raise UsageError(
            f"--rows has {quantity(len(rows), 'name')} for {quantity(len(arguments.run), 'run')}; give one for each"
        )
    if len({*rows}) != len(rows):
        raise UsageError(f"two runs have the same name ({', '.join(rows)}); give them different names with --rows")
    if unknown := [row for row, *_ in arguments.published if row not in rows]:
        raise UsageError(f"--published names the unknown row '{unknown[0]}'; the rows are {', '.join(rows)}")
    return dict(zip(rows, arguments.run))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Draw the validation exact match of several runs by epoch.")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    parser.add_argument("run", type=Path, nargs="+", help="run folders of nmt-train, with --valid-metrics exact")
    parser.add_argument("--title", default="Date task, exact match, %", help="title of the picture")
    parser.add_argument("--rows", nargs="+", help="names of the runs, one for each; default: their folder names")
    parser.add_argument("--results", type=Path, help="file of results (JSON) for the figures")
    parser.add_argument("--experiment", default="Textbook: dates", help="name of the experiment in the results")
    parser.add_argument("--setting", default="", help="data and sizes, in a few words")
    parser.add_argument(
        "--epochs",
        type=int,
        nargs="+",
        default=[1, 2],
        help="epochs whose figures are stored, in addition to the last one (1 2)",
    )
    parser.add_argument(
        "--published",
        nargs=3,
        action="append",
        default=[],
        metavar=("ROW", "EPOCH", "FIGURE"),
        help="published figure of a row after an epoch; can be repeated",
    )
    arguments = parser.parse_args()
    for _, epoch, figure in arguments.published:
        if not (epoch.isdecimal() and figure.replace(".", "", 1).isdecimal()):
            parser.error(f"--published: epoch and figure must be numbers, not {epoch} and {figure}")
    return arguments


def main() -> None:
    arguments = parsed()
    try:
        runs = named(arguments)
        logs = {row: run / "log.jsonl" for row, run in runs.items()}
        plot_comparison(logs, "exact", arguments.picture, title=arguments.title)
        if arguments.results:
            add_all(arguments.results, results(arguments, runs))
    except NMTError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(f"comparison: {arguments.picture}")


if __name__ == "__main__":
    main()

"""Files of results of the examples, and the page that compares them with published figures.

    python examples/results.py add runs/results.json --experiment "Table 4" --row "WSJ only" --metric F1 --ours 71.2 \\
        --published 91.3 --setting "3,396 trees" --run runs/parser
    python examples/results.py keep runs/results.json parsing
    python examples/results.py page docs/results/reproduction.md

``add`` stores one result in a file. It replaces the result with the same experiment, row, metric and setting.
``--run`` reads parameters, updates, training time and hardware from run folders, ``--score`` the figure from the
output of nmt-score. ``--picture images/date.svg --drawn FILE`` copies a picture to that name next to the file of
results. ``keep`` copies all results of a file to examples/parsing/results.json, and their pictures to docs/. A result
without a figure is shown as "not run" until one of the same experiment, row and metric is measured. ``page`` reads
examples/*/results.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from results_page import page

from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.reporting.run_record import read_events
from nmt.storage.files import atomic_write, explained_os_errors
from nmt.storage.reading import read_json
from nmt.threads import processor_name

EXAMPLES = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Result:
    """One figure, or one picture, of one experiment."""

    experiment: str  # "Table 4"
    row: str
    metric: str  # what is measured, with its unit: "BLEU", "million parameters", "picture"
    ours: float | None = None  # None: not measured; ``setting`` may have a forecast
    spread: float | None = None  # sample standard deviation over the runs
    runs: int = 1
    published: float | None = None
    comparable: bool = False  # measured like the published figure, so that the page shows the difference
    setting: str = ""
    signature: str = ""
    picture: str = ""  # path under docs/; before ``keep``: path from the folder of the file of results
    hardware: str = ""
    minutes: float | None = None  # wall time of training, summed over all runs
    updates: int | None = None  # of the longest run
    parameters: int | None = None
    commit: str = ""  # of this project when the figure was recorded
    date: str = ""  # on which the figure was recorded, as an ISO date

    @property
    def name(self) -> tuple[str, ...]:
        return self.experiment, self.row, self.metric

    @property
    def key(self) -> tuple[str, ...]:
        return *self.name, self.setting

    @property
    def was_run(self) -> bool:
        return self.ours is not None or bool(self.picture)


def read(path: Path) -> list[Result]:
    """Return the results of a file; an empty list if the file does not exist."""
    if not path.exists():
        return []
    try:
        return [Result(**entry) for entry in read_json(path)]
    except (DataError, TypeError) as error:
        raise DataError(f"{path} is not a file of results: {error}") from error


def write(path: Path, results: Iterable[Result]) -> None:
    """Write results as JSON, without the fields that have their default value."""
    empty = {field.name: field.default for field in fields(Result)}
    entries = [{name: value for name, value in asdict(result).items() if value != empty[name]} for result in results]
    with explained_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write((json.dumps(entries, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


def added(results: Sequence[Result], new: Result) -> list[Result]:
    """Return the results with the new one. It replaces the result with the same key, or comes last.

    A measured result also replaces the unmeasured ones of the same name. An unmeasured result is dropped if a measured
    one has its name.
    """
    others = [result for result in results if result.name == new.name]
    if not new.was_run and any(result.was_run for result in others):
        return [*results]
    replaced = [result for result in others if result.key == new.key or not result.was_run]
    if not replaced:
        return [*results, new]
    kept = [new if result is replaced[0] else result for result in results]
    return [result for result in kept if not any(result is one for one in replaced)]


def add_all(file: Path, new: Iterable[Result]) -> None:
    """Add several results to a file, in order. A measured one gets the commit and the date, if it has no date."""
    results = read(file)
    now = recorded_now()
    for result in new:
        results = added(results, replace(result, **now) if result.was_run and not result.date else result)
    write(file, results)


def keep(file: Path, example: Path) -> None:
    """Copy the results of a file to the folder of an example, and their pictures to docs/."""
    if not file.is_file():
        raise MissingInputError(f"{file} is missing: run the script of the example first, which writes it")
    names = sorted(path.parent.name for path in example.parent.glob("*/README.md"))
    if not (example / "README.md").is_file() or example == EXAMPLES:
        raise UsageError(f"there is no example '{example.name}'; the examples are {', '.join(names)}")
    results = read(file)
    for name in dict.fromkeys(result.picture for result in results if result.picture):
        copy(file.parent / name, example.parents[1] / "docs" / name)
    add_all(example / "results.json", results)


def copy(picture: Path, to: Path) -> None:
    if not picture.is_file():
        raise MissingInputError(f"{picture} is missing: run the script of the example again, which draws it")
    with explained_os_errors(to):
        to.parent.mkdir(parents=True, exist_ok=True)
        if not (to.exists() and to.samefile(picture)):
            shutil.copyfile(picture, to)


def hardware() -> str:
    """Return the number of cores and the processor of this machine."""
    return _cores(os.cpu_count(), processor_name())


def recorded_now() -> dict[str, str]:
    """Return the commit of this checkout, "" outside one, and the date."""
    git = ["git", "-C", str(EXAMPLES), "rev-parse", "--short=8", "HEAD"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = ""
    return {"commit": commit, "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat()}


def _cores(count: int | None, processor: str) -> str:
    return f"{count} cores of {processor}"


@dataclass(frozen=True)
class Facts:
    """Size, length and machine of a run, from its log."""

    parameters: int
    updates: int
    seconds: float  # wall time of training
    machines: list[str]
    epochs: int = 0  # number of epochs begun; 0: unknown


def facts_of(folder: Path) -> Facts:
    starts, end = _ends(folder / "log.jsonl")
    try:
        machines = [*dict.fromkeys(map(_machine, starts))]
        return Facts(
            starts[0]["model"]["parameters"], end["update"], float(end["seconds"]), machines, end.get("epoch", 0)
        )
    except (LookupError, TypeError) as error:
        raise DataError(f"{folder / 'log.jsonl'} is not a complete log of a run: it lacks {error}") from error


def together(runs: Sequence[Facts]) -> dict[str, Any]:
    """Return fields of a result: parameters if all runs agree, updates of the longest run, total minutes, machines."""
    if not runs:
        return {}
    parameters = {run.parameters for run in runs}
    return {
        "parameters": parameters.pop() if len(parameters) == 1 else None,
        "updates": max(run.updates for run in runs),
        "minutes": round(sum(run.seconds for run in runs) / 60, 1),
        "hardware": " and ".join(dict.fromkeys(machine for run in runs for machine in run.machines)),
    }


def of_runs(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the fields of a result that are in the logs of its runs."""
    return together([facts_of(folder) for folder in folders])


def _machine(start: dict[str, Any]) -> str:
    """Return the devices or the processor of a run, from the event of one of its starts."""
    environment = start.get("environment", {})
    if "gpu" in environment:
        return f"{start.get('devices') or 1} x {environment['gpu']}"
    # Logs of earlier versions do not name the processor. Assume the processor of this machine.
    return _cores(environment.get("processors") or os.cpu_count(), environment.get("processor") or processor_name())


def of_scores(files: Sequence[Path]) -> dict[str, Any]:
    """Return mean, standard deviation and signature of the first scores in outputs of ``nmt-score --format json``."""
    if not files:
        return {}
    values, signatures = list[float](), set[str]()
    for file in files:
        try:
            score = read_json(file)["scores"][0]
            values.append(float(score["score"]))
            if not math.isfinite(values[-1]):
                raise ValueError(f"{score['score']} is not a number")
            signatures.add(score["signature"])
        except (DataError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"{file} is not output of nmt-score --format json; score again") from error
    if len(signatures) > 1:
        raise DataError(f"scores with different signatures have no mean: {', '.join(sorted(signatures))}")
    spread = statistics.stdev(values) if len(values) > 1 else None
    ours = round(statistics.fmean(values), 2)
    return {
        "ours": ours,
        "spread": spread and round(spread, 2),
        "runs": len(values),
        "signature": signatures.pop(),
    }


def _ends(log: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the start events and the last end event of a run."""
    if not log.is_file():
        raise MissingInputError(f"{log} is missing: {log.parent} is not a run folder")
    events = read_events(log)
    trained = [event for event in events if event["event"] in ("train", "end")]
    if not trained or trained[-1]["event"] != "end":
        raise DataError(f"{log.parent} has not ended: train it to its end first")
    return [event for event in events if event["event"] == "start"], trained[-1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Store results of examples, and generate the page that compares them.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="add a result to a file, or replace the result with the same names")
    add.add_argument("file", type=Path, help="file of results (JSON)")
    add.add_argument("--experiment", required=True, help='table or figure of the paper, or a name ("Table 4")')
    add.add_argument("--row", required=True, help="row of the table")
    add.add_argument("--metric", required=True, help="measure with its unit")
    add.add_argument("--ours", type=float, help="measured figure; without it the row says 'not run'")
    add.add_argument(
        "--score",
        type=Path,
        nargs="+",
        default=[],
        help="outputs of nmt-score --format json: stores their mean and signature",
    )
    add.add_argument("--spread", type=float, help="sample standard deviation over several runs")
    add.add_argument("--runs", type=int, default=1, help="number of runs in the mean (1)")
    add.add_argument("--published", type=float, help="published figure")
    add.add_argument(
        "--comparable", action="store_true", help="measured like the published figure: show the difference"
    )
    add.add_argument(
        "--setting",
        default="",
        help="data, sizes and search, in a few words; {epochs} is replaced by the epochs of the longest --run",
    )
    add.add_argument("--signature", default="", help="signature of the score")
    add.add_argument("--picture", default="", help="name of a picture under docs/, instead of a figure")
    add.add_argument("--drawn", type=Path, help="file of the picture, copied to that name next to the file of results")
    add.add_argument("--run", type=Path, nargs="+", default=[], help="run folders of the result")
    take = commands.add_parser("keep", help="copy the results of a file to examples/EXAMPLE/results.json")
    take.add_argument("file", type=Path, help="results.json written by the script of the example")
    take.add_argument("example", help="name of the example's folder, such as parsing")
    make = commands.add_parser("page", help="generate the page from examples/*/results.json")
    make.add_argument("page", type=Path, help="Markdown file to write")
    given = vars(parser.parse_args(arguments))
    try:
        command = given.pop("command")
        if command == "page":
            files = sorted(EXAMPLES.glob("*/results.json"))
            text = page([(file.parent.name, result) for file in files for result in read(file)])
            with atomic_write(given["page"]) as opened:
                opened.write(text.encode("utf-8"))
        elif command == "keep":
            keep(given["file"], EXAMPLES / given["example"])
        else:
            file, runs, scores, drawn = (given.pop(name) for name in ("file", "run", "score", "drawn"))
            if drawn is not None and not given["picture"]:
                raise UsageError("--drawn FILE needs a name: --picture images/NAME.svg")
            if drawn is not None:
                copy(drawn, file.parent / given["picture"])
            stated = [f"--{name}" for name in ("ours", "spread", "signature") if given[name]]
            if scores and stated:
                raise UsageError(f"--score also sets {stated[0]}; give only one of them")
            if given["ours"] is not None and not math.isfinite(given["ours"]):
                raise UsageError(f"--ours {given['ours']} is not a number; omit it if nothing was run")
            found = [facts_of(folder) for folder in runs]
            epochs = max((run.epochs for run in found), default=0)
            if "{epochs}" in given["setting"] and not epochs:
                raise UsageError("--setting has {epochs}, but no --run gives their number; write the number")
            given["setting"] = given["setting"].replace("{epochs}", str(epochs))
            new = Result(**(given | of_scores(scores)))
            facts = together(found) or ({"hardware": hardware()} if new.was_run else {})
            add_all(file, [replace(new, **facts)])
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

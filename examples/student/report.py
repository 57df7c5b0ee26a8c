"""Write a table of the systems, and results.json: scores of each test set, and sentences per second.

    python report.py --experiment Student --speeds speed.json --teacher teacher-1 --tests test_2016_flickr \
        --systems teacher-1 teacher-2 ensemble student

Scores of system S on test set number N are in N.S.json, the output of nmt-score --format json. The last system is the
student. The report compares its BLEU and its speed with ``--teacher``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Result, add_all, hardware, of_runs

from nmt.errors import NMTError


def scores_of(system: str, tests: list[str]) -> list[dict[str, Any]]:
    """Return the scores of each test set, by metric."""
    found = []
    for number, _ in enumerate(tests):
        report = json.loads(Path(f"{number}.{system}.json").read_text(encoding="utf-8"))
        found.append({one["metric"]: one for one in report["scores"]})
    return found


def table(scores: dict[str, list[dict[str, Any]]], speeds: dict[str, Any], tests: list[str], teacher: str) -> str:
    head = [
        "system",
        *(f"BLEU, {test}" for test in tests),
        *(f"chrF2, {test}" for test in tests),
        "sentences/s",
        "by clock",
    ]
    lines = [f"| {' | '.join([*head, f'speed of {teacher}'])} |", "|" + "---|" * (len(head) + 1)]
    for name, found in scores.items():
        cells = [
            name,
            *(f"{one['bleu']['score']:.2f}" for one in found),
            *(f"{one['chrf']['score']:.2f}" for one in found),
        ]
        speed = speeds[name]
        cells += [f"{speed['cpu']['median']:.1f}", f"{speed['clock']['median']:.1f}"]
        lines.append(f"| {' | '.join([*cells, f'{faster(speeds, name, teacher):.2f}'])} |")
    return "\n".join(lines)


def faster(speeds: dict[str, Any], name: str, teacher: str) -> float:
    """Return the ratio to the teacher's sentences per CPU second, by the medians."""
    return float(speeds[name]["cpu"]["median"] / speeds[teacher]["cpu"]["median"])


def verdict(scores: dict[str, list[dict[str, Any]]], speeds: dict[str, Any], tests: list[str], teacher: str) -> str:
    student = list(scores)[-1]
    ours, theirs = (scores[name][0]["bleu"]["score"] for name in (student, teacher))
    share = f"{100 * ours / theirs:.1f} % of the BLEU of {teacher}" if theirs else f"no BLEU, as {teacher} has none,"
    times = f"{faster(speeds, student, teacher):.1f} times its sentences a second"
    return f"The student keeps {share} on {tests[0]}, at {times}."


def results(
    scores: dict[str, list[dict[str, Any]]], speeds: dict[str, Any], tests: list[str], experiment: str
) -> Iterator[Result]:
    """Yield the figures of each system, with facts of the run that trained it."""
    for name, found in scores.items():
        run, row = Path("..") / name / "run", in_words(name)
        facts = of_runs([run]) if run.is_dir() else {"hardware": hardware()}
        for test, one in zip(tests, found):
            for metric, shown in (("bleu", "BLEU"), ("chrf", "chrF2")):
                ours, signature = round(one[metric]["score"], 2), one[metric]["signature"]
                yield Result(experiment, row, shown, ours=ours, setting=test, signature=signature, **facts)
        speed = speeds[name]["cpu"]
        setting = f"one core, median of {len(speed['rounds'])} rounds"
        yield Result(
            experiment, row, "sentences/s", ours=round(speed["median"], 1), setting=setting, hardware=hardware()
        )


def in_words(system: str) -> str:
    """Return the name of a system in the results: ``teacher-1`` is teacher 1."""
    known = {
        "ensemble": "all teachers together",
        "student-searched-as-the-teacher": "student, searched as the teachers are",
    }
    return known.get(system, system.replace("-", " "))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a table of the systems, and their figures as results.json.")
    parser.add_argument("--experiment", required=True, help="name of the results")
    parser.add_argument("--speeds", type=Path, required=True, help="output file of speed.py")
    parser.add_argument("--teacher", required=True, help="system to compare the others with")
    parser.add_argument("--tests", nargs="+", required=True, help="names of the test sets, in order")
    parser.add_argument("--systems", nargs="+", required=True, help="names of the systems, the student last")
    arguments = parser.parse_args()
    try:
        scores = {name: scores_of(name, arguments.tests) for name in arguments.systems}
        speeds = json.loads(arguments.speeds.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"a figure is missing: {error}")
    try:
        add_all(Path("results.json"), results(scores, speeds, arguments.tests, arguments.experiment))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(table(scores, speeds, arguments.tests, arguments.teacher))
    print(f"\n{verdict(scores, speeds, arguments.tests, arguments.teacher)}")


if __name__ == "__main__":
    main()

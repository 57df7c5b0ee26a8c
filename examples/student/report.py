"""The table of the systems, and the same as results.json: scores of each test, sentences a second, what is kept.

    python report.py --experiment Student --speeds speed.json --teacher teacher-1 --tests test_2016_flickr \
        --systems teacher-1 teacher-2 ensemble student

Scores of system S on test number N are read from N.S.json, as nmt-score --format json writes them. The last system is the
student; its shares are those of ``--teacher``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results.py"


def scores_of(system: str, tests: list[str]) -> list[dict[str, Any]]:
    """Of each test its scores by metric."""
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
    """Times the sentences a CPU second of the teacher, by the medians."""
    return float(speeds[name]["cpu"]["median"] / speeds[teacher]["cpu"]["median"])


def verdict(scores: dict[str, list[dict[str, Any]]], speeds: dict[str, Any], tests: list[str], teacher: str) -> str:
    student = list(scores)[-1]
    share = scores[student][0]["bleu"]["score"] / scores[teacher][0]["bleu"]["score"]
    return (
        f"The student keeps {share:.1%} of the BLEU of {teacher} on {tests[0]}, at {faster(speeds, student, teacher):.1f} "
        f"times its sentences a second."
    ).replace("%", " %")


def keep(scores: dict[str, list[dict[str, Any]]], speeds: dict[str, Any], tests: list[str], experiment: str) -> None:
    """results.json, by the program that all examples share."""
    runs = {name: Path("..") / name / "run" for name in scores}
    for name, found in scores.items():
        run, row = ["--run", str(runs[name])] if runs[name].is_dir() else [], in_words(name)
        for test, one in zip(tests, found):
            for metric, shown in (("bleu", "BLEU"), ("chrf", "chrF2")):
                figures = ["--ours", f"{one[metric]['score']:.2f}", "--signature", one[metric]["signature"]]
                add(experiment, row, shown, [*figures, "--setting", test, *run])
        rounds = speeds[name]["cpu"]["rounds"]
        figures = [
            "--ours",
            f"{speeds[name]['cpu']['median']:.1f}",
            "--setting",
            f"one core, median of {len(rounds)} rounds",
        ]
        add(experiment, row, "sentences/s", figures)


def in_words(system: str) -> str:
    """What the results call a system: ``teacher-1`` is teacher 1."""
    known = {
        "ensemble": "all teachers together",
        "student-searched-as-the-teacher": "student, searched as the teachers are",
    }
    return known.get(system, system.replace("-", " "))


def add(experiment: str, row: str, metric: str, words: list[str]) -> None:
    line = [sys.executable, str(RESULTS), "add", "results.json", "--experiment", experiment, "--row", row]
    subprocess.run([*line, "--metric", metric, *words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The table of the systems, and their figures as results.json.")
    parser.add_argument("--experiment", required=True, help="name of the results")
    parser.add_argument("--speeds", type=Path, required=True, help="file of speed.py")
    parser.add_argument("--teacher", required=True, help="system that the others are compared with")
    parser.add_argument("--tests", nargs="+", required=True, help="names of the tests, in their order")
    parser.add_argument("--systems", nargs="+", required=True, help="names of the systems, the student last")
    arguments = parser.parse_args()
    try:
        scores = {name: scores_of(name, arguments.tests) for name in arguments.systems}
        speeds = json.loads(arguments.speeds.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"a figure is missing: {error}")
    keep(scores, speeds, arguments.tests, arguments.experiment)
    print(table(scores, speeds, arguments.tests, arguments.teacher))
    print(f"\n{verdict(scores, speeds, arguments.tests, arguments.teacher)}")


if __name__ == "__main__":
    main()

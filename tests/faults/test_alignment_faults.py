"""What can be wrong with a file of word alignments: each fault, the exit status and what the user is told."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.choices import InvalidText
from tests.faults.parallel_task import SOURCE, Task, outcome

PAIRS = ["0-0 1-1 2-2"] * len(SOURCE)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    task = Task(tmp_path)
    task.write("train.align", PAIRS)
    return task


def with_line(number: int, line: str) -> Callable[[Task], None]:
    return lambda task: task.write("train.align", [*PAIRS[: number - 1], line, *PAIRS[number:]])


FAULTS: list[tuple[str, Callable[[Task], object], int, str]] = [
    ("sound", lambda task: None, 0, ""),
    ("packed", lambda task: task.write("train.align", gzip.compress("\n".join(PAIRS).encode())), 0, ""),
    ("missing", lambda task: (task.folder / "train.align").unlink(), 66, r"neither .*train\.align nor .*\.gz"),
    (
        "too short",
        lambda task: task.write("train.align", PAIRS[:-1]),
        65,
        r"train\.align has 17 lines, but .*train\.en has 18",
    ),
    ("too long", lambda task: task.write("train.align", [*PAIRS, ""]), 65, r"train\.align has 19 lines, but .* has 18"),
    ("empty", lambda task: task.write("train.align", b""), 65, r"train\.align has 0 lines, but .* has 18"),
    ("no pair", with_line(3, "0-0 1_1"), 65, r"train\.align:3: '1_1' is not a pair of word numbers such as 3-4"),
    (
        "source word that is not there",
        with_line(5, "0-0 3-1"),
        65,
        r"train\.align:5: pair 3-1, but the source has 3 words",
    ),
    (
        "target word that is not there",
        with_line(18, "0-7"),
        65,
        r"train\.align:18: pair 0-7, but the target has 3 words",
    ),
    (
        "counted from one",
        lambda task: task.write("train.align", ["1-1 2-2 3-3"] * 18),
        65,
        r"train\.align:1: .*counted from 0",
    ),
    (
        "bytes that are not text",
        lambda task: task.write("train.align", b"0-0\n\xff\n" * 9),
        65,
        r"train\.align:2:0: byte 0xff",
    ),
    ("valid out of range", lambda task: task.write("valid.align", ["0-9"]), 65, r"valid\.align:1: pair 0-9"),
]


@pytest.mark.parametrize(
    ("spoil", "status", "says"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_fault_of_the_alignments_ends_with_its_status_and_leaves_nothing(
    spoil: Callable[[Task], object], status: int, says: str, task: Task
) -> None:
    spoil(task)
    found, message = outcome(lambda: task.make(align_suffix="align", on_invalid_utf8=InvalidText.skip))
    assert (found, bool(re.search(says, message))) == (status, True), message
    assert (task.folder / "corpus").exists() == (status == 0)
    assert "\n" not in message

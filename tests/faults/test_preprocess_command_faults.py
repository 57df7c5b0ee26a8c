"""Faults as the command reports them: one line, the exit status, nothing half-written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.storage.lock import process_lives
from tests.faults.parallel_task import SOURCE, TARGET, Task, surplus_line


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(tmp_path)


COMMAND = [sys.executable, "-c", "from nmt_cli.preprocess import main; main()"]


def arguments(task: Task) -> list[str]:
    return [
        *("--source-lang", "en", "--target-lang", "de", "--trainpref", f"{task.folder}/train"),
        *("--destdir", f"{task.folder}/corpus", "tokenizer=words"),
    ]


@pytest.mark.parametrize(
    ("spoil", "status", "says"),
    [
        (surplus_line, 65, "has 19; by line lengths, they diverge"),
        (lambda task: (task.folder / "train.en").unlink(), 66, "neither "),
        (lambda task: task.make(), 73, "is not empty"),
    ],
)
def test_the_command_says_one_line_and_exits_with_the_status(
    spoil: Callable[[Task], object], status: int, says: str, task: Task
) -> None:
    spoil(task)
    result = subprocess.run([*COMMAND, *arguments(task)], capture_output=True, text=True, check=False)
    assert result.returncode == status, result.stderr
    assert result.stdout == "" and result.stderr.count("\n") == 1 and says in result.stderr


def test_fault_22_the_locale_does_not_matter(task: Task) -> None:
    task.change("train.en", b"red", "grün".encode())
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run([*COMMAND, *arguments(task)], capture_output=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert "grün" in Corpus.open(task.folder / "corpus").pair.source.vocabulary.pieces


def write_long_text(task: Task) -> None:
    """So much that the command is still writing when the test looks, even on a machine that is busy elsewhere."""
    lines = [f"line {number} of a text that takes a while" for number in range(120_000)]
    task.write("train.en", lines)
    task.write("train.de", lines)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_fault_35_an_interrupted_command_leaves_nothing(number: signal.Signals, status: int, task: Task) -> None:
    write_long_text(task)
    process = subprocess.Popen(
        [*COMMAND, *arguments(task), "--workers", "2", "tokenizer=char"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list(task.folder.glob(".corpus.*.tmp")):  # until it writes
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status, stderr.decode()
    assert sorted(path.name for path in task.folder.iterdir()) == ["train.de", "train.en", "valid.de", "valid.en"]


# A signal at the worst moment: while the process copies itself, where Python forgets what a handler raises.
WHILE_IT_FORKS = """
import os
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), {number}))
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_fault_35_a_signal_while_workers_start_is_not_lost(number: signal.Signals, status: int, task: Task) -> None:
    before = WHILE_IT_FORKS.format(number=int(number))
    ended, said = task.run("--destdir", f"{task.folder}/corpus", "--workers", "2", "tokenizer=char", before=before)
    assert ended == status, said
    assert not (task.folder / "corpus").exists()


def test_fault_35_a_killed_command_leaves_no_corpus_and_can_be_repeated(task: Task) -> None:
    write_long_text(task)
    process = subprocess.Popen([*COMMAND, *arguments(task)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(task.folder.glob(".corpus.*.tmp")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait(timeout=60)
    assert not (task.folder / "corpus").exists()
    task.write("train.en", SOURCE)
    task.write("train.de", TARGET)
    task.make()
    assert not list(task.folder.glob(".corpus.*.tmp"))


def test_workers_end_with_a_killed_command_and_release_the_file_of_dropped_pairs(task: Task) -> None:
    write_long_text(task)
    line = [*arguments(task), "--workers", "2", "--keep-dropped", f"{task.folder}/dropped"]
    process = subprocess.Popen([*COMMAND, *line], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 60
    while len(workers := children.read_text().split()) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait(timeout=60)
    deadline = time.monotonic() + 10
    while any(process_lives(int(worker)) for worker in workers):
        assert time.monotonic() < deadline, "the workers outlive the command"
        time.sleep(0.01)
    task.write("train.en", SOURCE)
    task.write("train.de", TARGET)
    status, log = task.run("--keep-dropped", f"{task.folder}/dropped")
    assert status == 0, log


def test_fault_19_a_path_that_is_not_text_is_no_obstacle(task: Task, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    for name in ("train.en", "train.de"):
        shutil.copy(task.folder / name, os.path.join(os.fsdecode(folder), name))
    line = [*("--source-lang", "en", "--target-lang", "de", "--trainpref"), folder + b"/train"]
    done = subprocess.run([*COMMAND, *line, "--destdir", folder + b"/corpus", "tokenizer=words"], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert len(Corpus.open(Path(os.fsdecode(folder)) / "corpus").split("train")) > 0


def test_fault_49_a_bar_that_cannot_be_shown_does_not_stop_the_work(task: Task) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*COMMAND, *arguments(task), "--progress", "bar"], stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, done.stdout) == (0, b"")
    assert len(Corpus.open(task.folder / "corpus").split("train")) > 0

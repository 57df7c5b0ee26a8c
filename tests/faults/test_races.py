"""Several processes at one folder at the same time, through the commands."""

from __future__ import annotations

import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nmt.data.corpus.folder import Corpus
from nmt.storage.files import Verify
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy
from tests.faults.parallel_task import SOURCE, Task
from tests.faults.tiny_runs import nmt_train
from tests.unit.formats.stored import store

# Waits, when all is written and the destination was found free for the last time, until the other process is as far.
TOGETHER = """
import os, time
import nmt.preprocessing.preprocess as module
check, calls = module.check_destination, []

def checked(*arguments, **options):
    check(*arguments, **options)
    calls.append(None)
    if len(calls) == 2:
        open({own!r}, "w").close()
        deadline = time.monotonic() + 60
        while not os.path.exists({other!r}) and time.monotonic() < deadline:
            time.sleep(0.001)

module.check_destination = checked
"""


def two_at_once(task: Task, *options: str) -> list[tuple[int, str]]:
    """Status and log of two processes that make a corpus of different text in one folder."""
    shutil.copytree(task.folder, task.folder.with_name("other"))
    other = Task(task.folder.with_name("other"))
    other.write("train.en", [line.replace("red", "blue") for line in SOURCE])
    signs = [str(task.folder / "first ready"), str(task.folder / "second ready")]
    with ThreadPoolExecutor(2) as threads:
        both = [
            threads.submit(
                one.run,
                *("--destdir", f"{task.folder}/corpus", *options),
                before=TOGETHER.format(own=own, other=theirs),
            )
            for one, own, theirs in zip((task, other), signs, signs[::-1])
        ]
        found = [process.result() for process in both]
    assert all(Path(sign).exists() for sign in signs), found
    return found


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "text").mkdir()
    return Task(tmp_path / "text")


def words(folder: Path) -> set[str]:
    return set(Corpus.open(folder, Verify.full).pair.source.vocabulary.pieces)


def test_fault_90_of_two_preprocessings_into_one_folder_one_is_refused(task: Task) -> None:
    (status, said), (other_status, other_said) = sorted(two_at_once(task))
    assert (status, other_status) == (0, 73), (said, other_said)
    assert other_said.splitlines()[-1].endswith(
        "corpus exists already; choose another name, or replace it with --overwrite"
    )
    assert len({"red", "blue"} & words(task.folder / "corpus")) == 1
    assert not list(task.folder.glob(".*.tmp")), "nothing is left of the other"


def test_fault_90_of_two_preprocessings_that_may_overwrite_the_last_one_stays(task: Task) -> None:
    task.make()
    assert [status for status, _ in two_at_once(task, "--overwrite")] == [0, 0]
    assert len({"red", "blue"} & words(task.folder / "corpus")) == 1
    assert not list(task.folder.glob(".*.tmp"))


def test_fault_89_a_copy_of_a_run_that_trains_is_a_run_or_says_what_it_lacks(copy_corpus: Path, tmp_path: Path) -> None:
    """Copies begin while checkpoints are written and deleted all the time; each goes on to the end of the run itself."""
    run = tmp_path / "run"
    often = ("--max-update", "30", "--save-interval-updates", "1", "--keep-interval-updates", "2")
    copies: list[Path] = []
    with ThreadPoolExecutor(1) as thread:
        training = thread.submit(nmt_train, copy_corpus, run, *often, NMT_TEST_PROCESS="trains")
        while not training.done():
            if checkpoints_in(run):
                copies.append(tmp_path / f"copy {len(copies)}")
                subprocess.run(
                    ["cp", "-r", str(run), str(copies[-1])], capture_output=True, check=False
                )  # some files vanish
            time.sleep(0.01)
        training.result()
    assert len(copies) >= 3
    for copy in (copies[0], copies[len(copies) // 2]):
        done = run_copy("generate", "--path", copy, "--cpu", "--search", "greedy", stdin=b"a b\n\n")
        said = done.stderr.decode()
        assert "Traceback" not in said
        if done.returncode:
            assert done.returncode in (65, 66) and str(copy) in said.splitlines()[-1], said
        else:
            assert done.stdout.count(b"\n") == 2
        nmt_train(copy_corpus, copy, *often)
        weights, expected = (checkpoints_in(folder)[-1] / "model.safetensors" for folder in (copy, run))
        assert weights.read_bytes() == expected.read_bytes()


# Waits, after the early look at the output, until the other process has found the name free too.
BOTH_LOOKED = """
import os, time
import nmt_cli.generate_job as module
check = module.check_output

def checked(config):
    check(config)
    open({own!r}, "w").close()
    deadline = time.monotonic() + 60
    while not os.path.exists({other!r}) and time.monotonic() < deadline:
        time.sleep(0.001)

module.check_output = checked
"""


@pytest.mark.parametrize("more", [[], ["--resume-output"]], ids=["new", "resumed"])
def test_fault_97_of_two_translations_into_one_file_one_is_refused(more: list[str], tmp_path: Path) -> None:
    model, output = store(tmp_path / "model"), tmp_path / "out"
    signs = [str(tmp_path / "first ready"), str(tmp_path / "second ready")]
    with ThreadPoolExecutor(2) as threads:
        both = [
            threads.submit(
                run_copy,
                *("generate", "--path", model, "--cpu", "--output", output, *more),
                stdin=text,
                before=BOTH_LOOKED.format(own=own, other=other),
            )
            for text, own, other in zip((b"p1\n", b"p1\np2\n"), signs, signs[::-1])
        ]
        found = sorted((process.result() for process in both), key=lambda done: done.returncode)
    assert [done.returncode for done in found] == [0, 73], [done.stderr.decode() for done in found]
    last = found[1].stderr.decode().splitlines()[-1]
    assert f"another process is writing {output}" in last or f"{output} exists already" in last
    assert not list(tmp_path.glob(".out*")) and not list(tmp_path.glob("out.partial*")), "nothing is left of the other"
    assert output.read_bytes().count(b"\n") in (1, 2)

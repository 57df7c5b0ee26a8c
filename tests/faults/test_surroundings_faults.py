"""Strange surroundings, through all commands: names of files, no home, no room for temporary files, what is read-only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.storage.checkpoints import read_info
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy
from tests.faults.parallel_task import Task
from tests.faults.surroundings import WITHOUT_PRIVILEGES
from tests.faults.tiny_runs import TINY, nmt_train, refused

STRANGE = "größer {so} 'ein' Ordner = 名 & $HOME #1"


def all_commands(place: Path, *more: str | Path, **environment: str | None) -> str:
    """From text to a score, each command with what the one before it left, and ``more``. Returns what is said."""
    said = ""
    named = {
        "preprocess": "--source-lang en --target-lang de --tokenizer words --workers 2 --joined-dictionary".split(),
        "train": TINY,
        "average_checkpoints": ["--num-update-checkpoints", "2", "--data", "corpus", "--cpu"],
        "shortlist": ["corpus"],
        "generate": ["--cpu", "--beam", "2", "--workers", "2", "--buffer-size", "4"],
        "score": ["--metrics", "bleu,chrf"],
    }
    files = {
        "preprocess": {"trainpref": "train", "validpref": "valid", "destdir": "corpus"},
        "train": {"data": "corpus", "save-dir": "run"},
        "average_checkpoints": {"inputs": "run", "output": "mean"},
        "shortlist": {"output": "shortlist"},
        "generate": {"path": "mean", "input": "train.en", "output": "out", "shortlist": "shortlist"},
        "score": {"sys": "out", "ref": "train.de"},
    }
    for command, options in named.items():
        given = [word for flag, name in files[command].items() for word in (f"--{flag}", place / name)]
        options = [str(place / "corpus") if word == "corpus" else word for word in options]
        done = run_copy(command, *options, *given, *more, cwd=place, **environment)
        assert done.returncode == 0, (command, done.stderr.decode())
        said += done.stderr.decode()
    assert (place / "out").read_bytes().count(b"\n") == 18
    assert b"BLEU|" in done.stdout and b"chrF2|" in done.stdout
    return said


def test_fault_85_every_path_may_have_spaces_quotes_and_letters_of_any_script(tmp_path: Path) -> None:
    place = tmp_path / STRANGE
    place.mkdir()
    Task(place)
    plugin = place / "Zusätze.py"
    plugin.write_text("import sys\nsys.stderr.write('loaded\\n')\n", encoding="utf-8")
    assert all_commands(place, "--user-dir", plugin).count("loaded\n") == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == [STRANGE]


@pytest.fixture(scope="module")
def run(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; do not write to it."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    nmt_train(copy_corpus, folder)
    return folder


@pytest.fixture
def closed(run: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the run that nobody may write to."""
    folder = shutil.copytree(run, tmp_path / "closed")
    parts = [folder, *folder.rglob("*")]
    for part in parts:
        part.chmod(0o555 if part.is_dir() else 0o444)
    yield folder
    for part in parts:
        if part.is_dir():
            part.chmod(0o755)


def test_fault_88_a_model_that_is_read_only_is_read(closed: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in closed.rglob("*"))
    done = run_copy("generate", "--path", closed, "--cpu", stdin=b"a b\n", before=WITHOUT_PRIVILEGES)
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1), done.stderr.decode()
    line = ("--inputs", closed, "--output", tmp_path / "mean", "--no-validate")
    done = run_copy("average_checkpoints", *line, before=WITHOUT_PRIVILEGES)
    assert done.returncode == 0, done.stderr.decode()
    assert read_info(tmp_path / "mean").update == 6
    assert sorted((path, path.stat().st_mtime_ns) for path in closed.rglob("*")) == before


def test_fault_19_a_file_that_may_not_be_read_is_missing_input(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "text").chmod(0o000)
    said = refused("score", "--sys", "text", "--ref", "text", status=66, cwd=tmp_path, before=WITHOUT_PRIVILEGES)
    assert f"cannot read text: Permission denied (working directory: {tmp_path})" in said


def test_fault_19_training_text_that_may_not_be_read_is_missing_input(tmp_path: Path) -> None:
    task = Task(tmp_path)
    (tmp_path / "train.de").chmod(0o000)
    status, said = task.run(before=WITHOUT_PRIVILEGES)
    assert status == 66 and said.count("\n") == 1
    assert re.search(r"cannot read .*train\.de: Permission denied \(working directory: /", said), said
    assert not (tmp_path / "corpus").exists()


def test_fault_88_what_would_write_to_a_read_only_folder_says_so(closed: Path, copy_corpus: Path) -> None:
    more = ("--max-update", "8")
    said = nmt_train(copy_corpus, closed, *more, status=73, before=WITHOUT_PRIVILEGES).splitlines()[-1]
    assert "Permission denied; choose a folder that you may write to" in said and str(closed) in said
    line = ("--inputs", closed, "--output", closed / "mean", "--no-validate")
    said = refused("average_checkpoints", *line, status=73, before=WITHOUT_PRIVILEGES)
    assert f"you have no permission to write to {closed}; choose another place (--output)" in said
    line = ("--path", closed, "--cpu", "--output", closed / "out")
    said = refused("generate", *line, status=73, stdin=b"a\n", before=WITHOUT_PRIVILEGES)
    assert f"you have no permission to write to {closed}; choose another --output" in said


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems can be mounted by root alone")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_fault_50_a_file_system_that_is_read_only_is_status_74(run: Path, copy_corpus: Path, mounted: Path) -> None:
    shutil.copytree(run, mounted / "run")
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    done = run_copy("generate", "--path", mounted / "run", "--cpu", stdin=b"a b\n")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1), done.stderr.decode()
    said = nmt_train(copy_corpus, mounted / "run", "--max-update", "8", status=74).splitlines()[-1]
    assert "Read-only file system; choose a writable place" in said


@pytest.fixture
def without_room(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder where no file can be made: on a disk that is full if one can be mounted, else one that is not there."""
    try:
        folder: Path = request.getfixturevalue("mounted")
    except pytest.skip.Exception:
        return tmp_path / "absent"
    with open(folder / "filler", "wb") as file, pytest.raises(OSError, match="No space left"):
        while True:
            os.write(file.fileno(), bytes(4096))
    return folder


def test_faults_86_and_87_no_command_needs_a_home_or_room_for_temporary_files(
    tmp_path: Path, without_room: Path
) -> None:
    Task(tmp_path)
    assert "Traceback" not in all_commands(tmp_path, HOME=None, TMPDIR=str(without_room))


def test_fault_48_training_goes_on_when_the_disk_is_full_and_fails_if_it_still_is_at_the_end(
    copy_corpus: Path, mounted: Path
) -> None:
    filled = FILLED.format(filler=str(mounted / "filler"), until=5)
    said = nmt_train(copy_corpus, mounted / "run", before=filled)
    assert "could not write the checkpoint at update 2, training continues: cannot write" in said
    assert "could not write the checkpoint at update 4, training continues: cannot write" in said
    assert "No space left on device" in said
    assert [read_info(path).update for path in checkpoints_in(mounted / "run")] == [6]
    assert not list((mounted / "run").glob(".*.tmp"))
    (mounted / "filler").unlink(missing_ok=True)
    filled = FILLED.format(filler=str(mounted / "filler"), until=99)
    said = nmt_train(copy_corpus, mounted / "run", "--max-update", "8", before=filled, status=74).splitlines()[-1]
    assert "the last checkpoint of the run could not be written" in said and "free some space and start again" in said
    assert [read_info(path).update for path in checkpoints_in(mounted / "run")] == [6]


def test_fault_48_the_third_failure_in_a_row_ends_a_run_while_little_is_lost(copy_corpus: Path, mounted: Path) -> None:
    filled = FILLED.format(filler=str(mounted / "filler"), until=99)
    more = ("--max-update", "40", "--log-interval", "40")
    said = nmt_train(copy_corpus, mounted / "run", *more, before=filled, status=74)
    assert said.count("training continues: cannot write") == 2
    assert "could not write the checkpoint at update 4, training continues" in said
    last = said.splitlines()[-1]
    assert re.search(r"3 checkpoints in a row could not be written within \d+ minutes: cannot write", last), last
    assert "No space left on device" in last
    assert "there is no checkpoint" in last


def test_fault_48_a_fallback_folder_takes_what_the_disk_of_the_run_cannot(
    copy_corpus: Path, mounted: Path, tmp_path: Path
) -> None:
    filled = FILLED.format(filler=str(mounted / "filler"), until=99)
    more = ("--fallback-dir", tmp_path / "spare")
    said = nmt_train(copy_corpus, mounted / "run", *more, before=filled)
    (spare,) = (tmp_path / "spare").iterdir()
    assert f"writing the checkpoint at update 2 to {spare} instead: cannot write" in said
    assert [read_info(path).update for path in checkpoints_in(spare)] == [2, 4, 6]
    done = run_copy("generate", "--path", spare, "--cpu", stdin=b"a b\n")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1), done.stderr.decode()
    said = nmt_train(copy_corpus, mounted / "run", *more, "--max-update", "8")
    assert "resumed after update 6" in said
    assert [read_info(path).update for path in checkpoints_in(mounted / "run")] == [8]


# Leaves no room on the disk while a checkpoint before update `until` is written.
FILLED = """
import os
from nmt.training.checkpoints.store import CheckpointStore
save = CheckpointStore.save

def full(self, snapshot, **options):
    if snapshot.info.update >= {until}:
        return save(self, snapshot, **options)
    with open({filler!r}, "ab") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(1024))
        except OSError:
            pass
    try:
        return save(self, snapshot, **options)
    finally:
        if os.path.exists({filler!r}):
            os.unlink({filler!r})

CheckpointStore.save = full
"""

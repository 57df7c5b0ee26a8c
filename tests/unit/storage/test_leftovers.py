"""What interrupted writers leave is removed, and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmt.storage.files import new_folder, temporary, this_host, write_manifest
from nmt.storage.lock import remove_leftovers, remove_leftovers_of


@pytest.fixture
def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_leftovers_of_interrupted_writers_are_removed(tmp_path: Path, ended: int) -> None:
    folder, file, doomed = (
        f".a.{ended}-{this_host()}.00ff00ff.tmp",
        f".b.{ended}-{this_host()}.00ff00ff.tmp",
        ".checkpoint-0001-00000002.old.tmp",
    )
    (tmp_path / folder).mkdir()
    (tmp_path / file).write_text("x")
    (tmp_path / doomed).mkdir()
    (tmp_path / "kept").write_text("x")
    assert remove_leftovers(tmp_path) == [folder, file, doomed] and os.listdir(tmp_path) == ["kept"]


@pytest.mark.parametrize(
    "name", [".notes.tmp", ".mine.old.tmp", ".a.1.ff.tmp", ".a.{ended}-00ff00ff.00FF00FF.tmp", "a.tmp"]
)
def test_hidden_files_of_the_user_are_kept(tmp_path: Path, name: str, ended: int) -> None:
    path = tmp_path / name.format(ended=ended)
    path.write_text("mine")
    assert remove_leftovers(tmp_path) == [] and path.read_text() == "mine"


def test_the_temporary_file_of_a_live_writer_is_kept(tmp_path: Path) -> None:
    path = tmp_path / f".a.{os.getppid()}-{this_host()}.00ff00ff.tmp"
    path.write_text("half")
    assert remove_leftovers(tmp_path) == [] and path.read_text() == "half"


@pytest.mark.parametrize("name", ["last.json", "x.tmp", "odd\nname"])
def test_what_an_interrupted_writer_leaves_is_recognised(tmp_path: Path, name: str) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / name) as temporary:
        assert remove_leftovers(tmp_path) == [temporary.name]
        raise RuntimeError


@pytest.mark.parametrize(("hours", "kept"), [(0, True), (23, True), (25, False)])
def test_what_another_machine_writes_is_kept_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int, kept: bool
) -> None:
    """Its processes cannot be asked from here; of a folder any file tells that it is still written."""
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    file, folder = (temporary(tmp_path / name) for name in ("hyp.txt", "corpus"))
    monkeypatch.undo()
    folder.mkdir()
    now = time.time()
    for path in (file, folder / "train.bin"):
        path.write_text("half")
        os.utime(path, (now - 3600 * hours,) * 2)
    os.utime(folder, (now - 3600 * 48,) * 2)
    assert bool(remove_leftovers(tmp_path)) != kept
    assert (file.exists(), folder.exists()) == (kept, kept)


def test_a_temporary_name_of_this_machine_says_so(tmp_path: Path, ended: int) -> None:
    own = temporary(tmp_path / "hyp.txt").name
    dead, living = (own.replace(f".{os.getpid()}-", f".{process}-") for process in (ended, os.getppid()))
    for name in (dead, living):
        (tmp_path / name).write_text("half")
    assert dead != own and remove_leftovers(tmp_path) == [dead] and os.listdir(tmp_path) == [living]


def test_beside_a_destination_only_its_own_leftovers_are_removed(tmp_path: Path, ended: int) -> None:
    own, similar, other = (f".{name}.{ended}-{this_host()}.00ff00ff.tmp" for name in ("corpus", "corpus.2", "run"))
    for name in (own, similar, other):
        (tmp_path / name).write_text("half")
    doomed = tmp_path / ".checkpoint-0001-00000002.old.tmp"
    doomed.mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "corpus")
    remove_leftovers_of(tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == sorted([similar, other, doomed.name, "link"])


def interrupted_replacement(tmp_path: Path, ended: int) -> Path:
    """A folder under the name that it has while it is replaced."""
    with new_folder(tmp_path / "model") as folder:
        (folder / "old").write_text("old")
        write_manifest(folder, "thing", 1)
    old = tmp_path / f".model.{ended}-00ff00ff.00ff00ff.old.tmp"
    (tmp_path / "model").rename(old)
    return old


def test_a_folder_that_is_just_being_replaced_is_left_to_who_replaces_it(tmp_path: Path) -> None:
    old = interrupted_replacement(tmp_path, os.getppid())
    aside = old.with_name(temporary(tmp_path / "model").name.replace(f".{os.getpid()}-", f".{os.getppid()}-"))
    aside = old.rename(aside.with_suffix(".old.tmp"))
    assert remove_leftovers(tmp_path) == [] and os.listdir(tmp_path) == [aside.name]


def test_a_folder_whose_replacement_never_came_gets_its_name_back(tmp_path: Path, ended: int) -> None:
    interrupted_replacement(tmp_path, ended)
    remove_leftovers_of(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"] and (tmp_path / "model" / "old").read_text() == "old"


@pytest.mark.parametrize("replaced", [True, False])
def test_what_was_replaced_and_what_is_deleted_in_part_does_not_come_back(
    tmp_path: Path, ended: int, replaced: bool
) -> None:
    old = interrupted_replacement(tmp_path, ended)
    if replaced:
        (tmp_path / "model").mkdir()
    else:
        (old / "manifest.json").unlink()
    assert remove_leftovers(tmp_path) == [old.name] and os.listdir(tmp_path) == ["model"] * replaced

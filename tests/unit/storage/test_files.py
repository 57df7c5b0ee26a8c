"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.errors import DataError, MissingInputError, OutputError, StorageError
from nmt.storage import files, reading
from nmt.storage.files import (
    Verify,
    atomic_write,
    check_destination,
    copy_folder,
    new_folder,
    read_manifest,
    replace_manifest,
    write_json,
    write_manifest,
    yaml_text,
)
from nmt.storage.reading import read_json


def test_an_interrupted_write_leaves_the_old_content_and_no_leftover(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half of the new")
        raise RuntimeError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_completed_write_replaces_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_full_disk_is_one_sentence_with_status_74(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device") as caught, atomic_write(tmp_path / "x") as file:
        file.write(b"new")
    assert caught.value.exit_status == 74 and os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_created_is_status_73() -> None:
    with pytest.raises(OutputError) as caught, new_folder(Path("/proc/nowhere/folder")):
        pass
    assert caught.value.exit_status == 73


def test_an_existing_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(OutputError, match="--overwrite"), new_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "out" / "mine").read_text() == "kept"


def test_overwriting_replaces_the_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    with new_folder(tmp_path / "out", overwrite=True) as folder:
        (folder / "new").write_text("new")
    assert os.listdir(tmp_path / "out") == ["new"] and os.listdir(tmp_path) == ["out"]


def test_a_failure_while_filling_keeps_the_old_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError), new_folder(tmp_path / "out", overwrite=True) as folder:
        (folder / "new").write_text("new")
        raise ValueError
    assert os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == []


def test_a_folder_takes_its_name_when_all_of_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss of power a name may otherwise stand for files that are empty."""
    synced, renamed = list[int](), list[int]()
    rename = os.rename

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    def note(source: Path, target: Path) -> None:
        renamed.append(len(synced))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", note)
    with new_folder(tmp_path / "out") as folder:
        (folder / "inner").mkdir()
        for name in ("a", "inner/b"):
            (folder / name).write_text(name)
    parts = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    assert len(parts) == 4 and len(renamed) == 1
    assert {part.stat().st_ino for part in parts} <= {*synced[: renamed[0]]}
    assert tmp_path.stat().st_ino in synced[renamed[0] :]


def test_a_copied_folder_holds_what_the_first_one_does(tmp_path: Path) -> None:
    (tmp_path / "first" / "inner").mkdir(parents=True)
    (tmp_path / "first" / "empty").mkdir()
    (tmp_path / "words").write_text("of a link")
    (tmp_path / "first" / "link").symlink_to(tmp_path / "words")
    (tmp_path / "first" / "inner" / "b").write_bytes(b"abc")
    copy_folder(tmp_path / "first", tmp_path / "second")
    assert (tmp_path / "second" / "inner" / "b").read_bytes() == b"abc" and (tmp_path / "second" / "empty").is_dir()
    copied = tmp_path / "second" / "link"
    assert copied.read_text() == "of a link" and not copied.is_symlink()


def test_a_folder_that_is_not_there_is_not_copied_as_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        copy_folder(tmp_path / "nowhere", tmp_path / "second")
    assert not (tmp_path / "second").exists()


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = tmp_path / "sealed"
    (folder / "inner").mkdir(parents=True)
    (folder / "a").write_bytes(b"0123456789")
    (folder / "inner" / "b").write_bytes(b"abc")
    write_manifest(folder, "thing", 1, fact="kept")
    return folder


def test_a_manifest_round_trip_keeps_the_facts(sealed: Path) -> None:
    manifest = read_manifest(sealed, "thing", 1, verify=Verify.full)
    assert manifest["fact"] == "kept" and set(manifest["files"]) == {"a", "inner/b"}


@pytest.mark.parametrize(
    ("damage", "verify", "sentence"),
    [
        (lambda f: (f / "a").write_bytes(b"01234"), Verify.fast, "5 bytes instead of 10"),
        (lambda f: (f / "a").write_bytes(b"0123456780"), Verify.full, "checksum"),
        (lambda f: (f / "inner" / "b").unlink(), Verify.fast, "missing"),
        (lambda f: (f / "manifest.json").write_text("{"), Verify.fast, "not JSON"),
        (lambda f: (f / "manifest.json").write_text("[]"), Verify.fast, "holds no thing"),
        (
            lambda f: write_json(f / "manifest.json", {"kind": "thing", "format": 1, "files": {"a": 3}}),
            Verify.fast,
            "damaged",
        ),
    ],
)
def test_damage_is_named(sealed: Path, damage, verify: Verify, sentence: str) -> None:  # type: ignore[no-untyped-def]
    damage(sealed)
    with pytest.raises(DataError, match=sentence) as caught:
        read_manifest(sealed, "thing", 1, verify=verify)
    assert caught.value.exit_status == 65


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "inner/../../outside"])
def test_a_manifest_that_names_files_outside_its_folder_is_refused(sealed: Path, name: str) -> None:
    (sealed.parent / "outside").write_bytes(b"x")
    manifest = read_json(sealed / "manifest.json")
    manifest["files"][name] = {"bytes": 1, "sha256": ""}
    write_json(sealed / "manifest.json", manifest)
    with pytest.raises(DataError, match="outside the folder"):
        read_manifest(sealed, "thing", 1)


def test_a_manifest_of_which_a_fact_has_changed_is_refused(sealed: Path) -> None:
    path = sealed / "manifest.json"
    path.write_text(path.read_text().replace('"kept"', '"lost"'))
    with pytest.raises(DataError, match="manifest.json is damaged: its checksum does not match its content"):
        read_manifest(sealed, "thing", 1)


def test_a_manifest_of_an_earlier_version_has_no_checksum(sealed: Path) -> None:
    tree = read_json(sealed / "manifest.json")
    assert next(iter(tree)) == "checksum"
    del tree["checksum"]
    write_json(sealed / "manifest.json", tree)
    assert read_manifest(sealed, "thing", 1)["fact"] == "kept"


@pytest.mark.parametrize("facts", [{"by number": {2: 0.1, 10: (1, None)}}, {"path": "caf\udce9 \U0001f600"}])
def test_facts_of_all_kinds_have_a_checksum(facts: dict[str, Any], sealed: Path) -> None:
    replace_manifest(sealed, read_manifest(sealed, "thing", 1) | facts)
    read_manifest(sealed, "thing", 1)


@pytest.mark.parametrize("name", ["a\0", "\ud800", "x" * 300, ""], ids=repr)
def test_a_name_that_no_file_has_is_one_of_a_file_that_is_missing(name: str, sealed: Path) -> None:
    manifest = read_json(sealed / "manifest.json")
    manifest["files"][name] = {"bytes": 1, "sha256": ""}
    write_json(sealed / "manifest.json", manifest)
    with pytest.raises(DataError, match="is missing, although manifest.json lists it"):
        read_manifest(sealed, "thing", 1)


def test_what_is_nested_too_deep_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(DataError, match="deep is damaged: it is not JSON"):
        read_json(tmp_path / "deep")


def test_a_link_out_of_the_folder_is_refused(sealed: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"0123456789")
    (sealed / "a").unlink()
    (sealed / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="outside the folder"):
        read_manifest(sealed, "thing", 1)


def test_links_of_a_snapshot_may_lead_into_its_cache_only(sealed: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--a--b" / "snapshots" / "c0ffee"
    snapshot.parent.mkdir(parents=True)
    (tmp_path / "hub" / "blob").write_bytes((sealed / "a").read_bytes())
    sealed.rename(snapshot)
    (snapshot / "a").unlink()
    (snapshot / "a").symlink_to(tmp_path / "hub" / "blob")
    read_manifest(snapshot, "thing", 1, verify=Verify.full)
    (tmp_path / "hub" / "blob").rename(tmp_path / "outside")
    (tmp_path / "hub" / "blob").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="outside the folder"):
        read_manifest(snapshot, "thing", 1)


def test_another_format_names_both_versions(sealed: Path) -> None:
    with pytest.raises(DataError, match="in format 1; this is nmt .* reads format 2"):
        read_manifest(sealed, "thing", 2)


def test_a_missing_folder_is_status_66(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="working directory"):
        read_manifest(tmp_path / "nowhere", "thing", 1)


@pytest.mark.parametrize("there", ["files", "an empty folder", "a file"])
def test_what_another_process_wrote_meanwhile_is_not_replaced_unless_it_may_be(tmp_path: Path, there: str) -> None:
    def meanwhile() -> None:
        if there == "a file":
            (tmp_path / "folder").write_text("theirs")
        else:
            (tmp_path / "folder").mkdir()
        if there == "files":
            (tmp_path / "folder" / "theirs").touch()

    if there == "an empty folder":
        with new_folder(tmp_path / "folder") as folder:
            meanwhile()
            (folder / "ours").touch()
        assert os.listdir(tmp_path / "folder") == ["ours"]
        return
    with pytest.raises(OutputError, match="folder exists already"), new_folder(tmp_path / "folder"):
        meanwhile()
    assert os.listdir(tmp_path) == ["folder"] and not (tmp_path / "folder" / "ours").exists()


def test_what_another_process_wrote_while_it_was_replaced_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    rename, theirs = os.rename, iter(["theirs", "theirs too"])

    def disturbed(old: Path, new: Path) -> None:
        rename(old, new)
        name = next(theirs, None) if str(new).endswith(".old.tmp") else None
        if name is not None:
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder" / name).touch()

    monkeypatch.setattr(files.os, "rename", disturbed)
    with new_folder(tmp_path / "folder", overwrite=True) as folder:
        (folder / "ours").touch()
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(tmp_path / "folder") == ["ours"]


@pytest.mark.parametrize(("stale", "succeeds"), [(1, True), (2, True), (3, False)])
def test_what_a_network_file_system_lost_sight_of_is_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: int, succeeds: bool
) -> None:
    (tmp_path / "new").mkdir()
    failures = iter(range(stale))
    replace, pauses = os.replace, []

    def sometimes(old: Path, new: Path) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.ESTALE, "Stale file handle")
        replace(old, new)

    monkeypatch.setattr(files.os, "replace", sometimes)
    monkeypatch.setattr(reading.time, "sleep", pauses.append)
    path = tmp_path / "new" / "file.json"
    if succeeds:
        write_json(path, 7)
        assert read_json(path) == 7 and len(pauses) == stale
    else:
        with pytest.raises(OutputError, match="Stale file handle"):
            write_json(path, 7)
        assert list(path.parent.iterdir()) == []


def test_other_errors_are_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(old: Path, new: Path) -> None:
        calls.append(new)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(StorageError, match="No space left"):
        write_json(tmp_path / "file.json", 7)
    assert len(calls) == 1


def test_of_what_is_replaced_the_manifest_is_the_first_to_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)  # the process ends before
    for _ in range(2):
        with new_folder(tmp_path / "model", overwrite=True) as folder:
            write_manifest(folder, "thing", 1)
    (old,) = tmp_path.glob(".model.*.old.tmp")
    assert os.listdir(old) == [] and os.listdir(tmp_path / "model") == ["manifest.json"]


@pytest.mark.parametrize(
    ("number", "kind", "advice"),
    [
        (errno.ENOSPC, StorageError, "free some space"),
        (errno.EROFS, StorageError, "choose a writable place"),
        (errno.EIO, StorageError, "check the disk"),
        (errno.EACCES, OutputError, "choose a folder that you may write to"),
        (errno.ENOENT, OutputError, "create its folder first"),
        (errno.ELOOP, OutputError, "choose another place"),
    ],
)
def test_a_fault_of_the_disk_has_its_status_and_advice(
    tmp_path: Path, number: int, kind: type[Exception], advice: str
) -> None:
    with pytest.raises(kind, match=f"{os.strerror(number)}; {advice}"), atomic_write(tmp_path / "file"):
        raise OSError(number, os.strerror(number))


def test_a_path_that_is_not_utf8_survives_json_and_yaml(tmp_path: Path) -> None:
    path = os.fsdecode(b"/tmp/caf\xe9/\xc3\xa9")
    write_json(tmp_path / "facts.json", {"path": path})
    assert read_json(tmp_path / "facts.json") == {"path": path}
    assert yaml.safe_load(yaml_text({"b": path, "a": "é 1 😀"})) == {"b": path, "a": "é 1 😀"}
    for text in ("é 1", "😀", "𝒳 y"):
        assert yaml_text({"b": None, "a": [text, 0.5]}) == f"b: null\na:\n- {text}\n- 0.5\n"


@pytest.mark.parametrize("name", ["folder", "folder/../folder", "link"])
def test_a_folder_is_replaced_by_whatever_name(tmp_path: Path, name: str) -> None:
    """A link stays one, and a path through the folder itself does not lose it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    (tmp_path / "link").symlink_to("folder")
    with files.new_folder(tmp_path / name, overwrite=True) as folder:
        (folder / "new").touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    assert (tmp_path / "link").is_symlink() and sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"]


def test_a_file_below_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a part of the path is a file"), files.atomic_write(tmp_path / "file" / "x"):
        pass


def test_where_no_folder_can_be_made_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    for name, complaint in (
        (".", "is or contains the working directory"),
        ("", "is or contains the working directory"),
        ("..", "is or contains the working directory"),
        ("../file/x/y", "cannot be created, because .*file is a file"),
        ("../file", "exists and is not a folder"),
    ):
        with pytest.raises(OutputError, match=complaint):
            check_destination(Path(name), "corpus", "--destdir", overwrite=True)
    check_destination(Path("a/b"), "corpus", "--destdir", overwrite=False)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(OutputError, match="no permission to write to .*inside"):
        check_destination(Path("a/b"), "corpus", "--destdir", overwrite=False)

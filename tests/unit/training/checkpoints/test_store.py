"""The checkpoints of a run folder."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.config.sections import CheckpointConfig
from nmt.errors import DataError, OutputError, StorageError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState, drop_training_state, read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.checkpoints import store as store_module
from nmt.training.checkpoints.store import CheckpointStore, Snapshot

MakeStore = Callable[..., CheckpointStore]


@pytest.fixture
def make_store(tmp_path: Path) -> MakeStore:
    (tmp_path / "corpus" / "tokenizer").mkdir(parents=True)
    (tmp_path / "corpus" / "tokenizer" / "pair.json").write_text("{}")

    def make(options: CheckpointConfig | None = None) -> CheckpointStore:
        store = CheckpointStore(
            tmp_path / "run",
            options or CheckpointConfig(),
            config={"seed": 1, "model": {}, "training": {}, "checkpoint": {}},
            tokenizer=tmp_path / "corpus" / "tokenizer",
            metric="loss",
            higher_is_better=False,
        )
        store.prepare()
        return store

    return make


def test_a_disk_that_gets_full_with_the_tokenizer_is_status_74(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match="No space left on device; free some space"):
        make_store()
    assert not (tmp_path / "run" / "tokenizer").exists()


def snapshot(update: int, *, reasons: tuple[str, ...] = ("update",), loss: float | None = None) -> Snapshot:
    return Snapshot(
        CheckpointInfo(update, 1, reasons, {} if loss is None else {"loss": loss}),
        {"weight": torch.full((3,), float(update))},
        TrainingState({}, {"update": update}),
    )


def test_pointers_name_what_is_gone_on_from_and_the_best_that_is_there(make_store: MakeStore) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=5))
    paths = {update: store.save(snapshot(update), best=update == 1, required=False) for update in (1, 2, 3)}
    stored = read_checkpoint(paths[2] or Path(), training=True)  # the third turned out to be damaged
    store.mend_pointers(stored, best=2)
    assert (store.last(), store.best()) == (paths[2], paths[2])
    store.mend_pointers(stored, best=99)  # deleted by hand
    assert (store.last(), store.best()) == (paths[2], paths[2])
    store.mend_pointers(stored, best=None)  # of another metric
    assert (store.last(), store.best()) == (paths[2], paths[2])
    (store.folder / "best.json").unlink()
    store.mend_pointers(stored, best=1)
    assert (store.last(), store.best()) == (paths[2], paths[1])


def names(store: CheckpointStore) -> list[int]:
    return [int(path.name[-8:]) for path in checkpoints_in(store.folder)]


def test_a_new_run_folder_holds_configuration_and_tokenizer(make_store: MakeStore) -> None:
    store = make_store()
    assert (store.folder / "config.yaml").read_text() == "seed: 1\nmodel: {}\ntraining: {}\ncheckpoint: {}\n"
    assert (store.folder / "tokenizer" / "pair.json").read_text() == "{}"
    assert store.restore() is None and store.last() is None and store.best() is None


def test_the_newest_checkpoint_is_restored(make_store: MakeStore) -> None:
    store = make_store()
    for update in (4, 8, 100):
        store.save(snapshot(update), best=False, required=False)
    restored = make_store().restore()
    assert restored is not None and restored.info.update == 100
    assert restored.training is not None and restored.training.values == {"update": 100}


@pytest.mark.parametrize("harm", ["truncate", "empty", "remove a file", "flip a bit"])
def test_a_damaged_checkpoint_is_passed_over(
    make_store: MakeStore, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    for update in (4, 8):
        store.save(snapshot(update), best=False, required=False)
    file = store.folder / "checkpoint-0001-00000008" / "model.safetensors"
    content = file.read_bytes()
    file.unlink()
    if harm != "remove a file":
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        file.write_bytes({"truncate": content[:-5], "empty": b"", "flip a bit": flipped}[harm])
    restored = make_store().restore()
    assert restored is not None and restored.info.update == 4
    assert "checkpoint-0001-00000008" in caplog.text and "the updates after 4 are lost" in caplog.text


def test_if_all_are_damaged_nothing_is_restored_and_the_first_fault_is_named(make_store: MakeStore) -> None:
    store = make_store()
    for update in (4, 8):
        store.save(snapshot(update), best=False, required=False)
    for path in checkpoints_in(store.folder):
        (path / "config.yaml").unlink()
    with pytest.raises(DataError, match=r"00000008/config.yaml is missing"):
        make_store().restore()


def test_old_checkpoints_are_deleted_once_the_pointers_have_moved(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=2))
    last_at_deletion: list[Path | None] = []
    rmtree = shutil.rmtree

    def noting(path: Path, *arguments: object, **options: object) -> None:
        if "checkpoint-" in Path(path).name and Path(path).name.endswith(".old.tmp"):
            last_at_deletion.append(store.last())
        rmtree(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store_module.shutil, "rmtree", noting)
    store.save(snapshot(1, loss=1.0), best=True, required=False)
    for update in (2, 3, 4, 5):
        store.save(snapshot(update, loss=2.0), best=False, required=False)
    assert names(store) == [1, 4, 5]
    assert [path and path.name[-1] for path in last_at_deletion] == ["4", "5"]


def test_a_failed_deletion_is_a_warning(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=1))
    for update in (1, 2):
        store.save(snapshot(update), best=False, required=False)

    def refuse(self: Path, target: object) -> Path:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "rename", refuse)
    assert store.save(snapshot(3), best=False, required=False) is not None
    assert "could not delete the old checkpoint" in caplog.text


def test_a_save_that_fails_is_a_warning_unless_the_run_ends_with_it(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    store.save(snapshot(1), best=False, required=False)

    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write: No space left on device")

    monkeypatch.setattr(store_module, "write_checkpoint", full)
    assert store.save(snapshot(2), best=False, required=False) is None
    assert "could not write the checkpoint at update 2, training continues" in caplog.text
    with pytest.raises(StorageError, match="No space left"):
        store.save(snapshot(3), best=False, required=True)
    assert names(store) == [1]


def test_where_the_best_of_all_was_lost_the_best_that_is_stored_is_pointed_at(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=9))
    first = store.save(snapshot(1, loss=3.0), best=True, required=False)

    def full(*_: object, **__: object) -> None:
        raise StorageError("cannot write: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_checkpoint", full)
        assert store.save(snapshot(2, loss=1.0), best=True, required=False) is None
    assert store.best() == first
    store.save(snapshot(3, loss=3.5), best=False, required=False)
    store.save(snapshot(4), best=False, required=False)  # not validated
    assert store.best() == first
    fifth = store.save(snapshot(5, loss=2.0), best=False, required=False)
    assert store.best() == fifth
    again = make_store(CheckpointConfig(keep_interval_updates=9))  # and so it is after a stop
    again.mend_pointers(read_checkpoint(fifth or Path(), training=True), best=2)
    ((fifth or Path()) / "manifest.json").write_text("{")  # a damaged one is beaten by any
    sixth = again.save(snapshot(6, loss=2.5), best=False, required=False)
    assert again.best() == sixth
    again.save(snapshot(7, loss=0.5), best=True, required=False)
    again.save(snapshot(8, loss=0.7), best=False, required=False)
    assert str(again.best()).endswith("7")


def test_little_space_is_said_before_it_is_too_little(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    store.save(snapshot(1), best=False, required=False)
    assert "are free" not in caplog.text
    usage = shutil.disk_usage(store.folder)
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda path: usage._replace(free=10))
    store.save(snapshot(2), best=False, required=False)
    assert "only 0.0 MB are free" in caplog.text


def test_without_restore_an_old_run_is_not_written_over(make_store: MakeStore) -> None:
    make_store().save(snapshot(1), best=False, required=False)
    with pytest.raises(OutputError, match="checkpoint.restore=false"):
        make_store(CheckpointConfig(restore=False)).restore()
    assert make_store(CheckpointConfig()).restore() is not None


def test_while_a_pointer_cannot_be_read_nothing_is_deleted(
    make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=1))
    store.save(snapshot(1, loss=1.0), best=True, required=False)
    (store.folder / "best.json").write_bytes(b"")
    for update in (2, 3):
        assert store.save(snapshot(update, loss=2.0), best=False, required=False) is not None
    assert names(store) == [1, 2, 3] and store.best() is None
    assert len([message for message in caplog.messages if "best.json" in message]) == 1


def test_a_pointer_that_is_written_again_lets_old_checkpoints_go(make_store: MakeStore) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=1))
    store.save(snapshot(1, loss=2.0), best=True, required=False)
    (store.folder / "best.json").write_bytes(b"")
    store.save(snapshot(2, loss=3.0), best=False, required=False)
    store.save(snapshot(3, loss=1.0), best=True, required=False)
    assert names(store) == [2, 3]


def test_a_checkpoint_of_a_newer_format_is_not_taken_for_damage(make_store: MakeStore) -> None:
    store = make_store()
    for update in (4, 8):
        store.save(snapshot(update), best=False, required=False)
    file = store.folder / "checkpoint-0001-00000008" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99, "written_by": "nmt 9"}))
    with pytest.raises(DataError, match="written by nmt 9 in format 99"):
        make_store().restore()


def resumable(store: CheckpointStore) -> list[int]:
    stored = [read_checkpoint(path, training=True) for path in checkpoints_in(store.folder)]
    return [checkpoint.info.update for checkpoint in stored if checkpoint.training is not None]


@pytest.mark.parametrize(("count", "expected"), [(1, [5]), (2, [4, 5]), (None, [1, 2, 3, 4, 5])])
def test_only_the_last_ones_can_be_resumed(make_store: MakeStore, count: int | None, expected: list[int]) -> None:
    store = make_store(CheckpointConfig(keep_training_states=count))
    for update in range(1, 6):
        store.save(snapshot(update), best=False, required=False)
    assert names(store) == [1, 2, 3, 4, 5] and resumable(store) == expected
    left = {path.parent.name[-1] for path in store.folder.glob("*/training.*")}
    assert left == {str(update) for update in expected}


def test_the_one_just_written_can_be_resumed_although_others_stand_after_it(make_store: MakeStore) -> None:
    """As where a run fell back from damaged ones, or its user deleted some."""
    store = make_store(CheckpointConfig(keep_training_states=2))
    for update in (5, 8, 9):
        store.save(snapshot(update), best=False, required=False)
    store.save(snapshot(6), best=False, required=False)
    assert resumable(store) == [6, 9]
    store.save(snapshot(7), best=False, required=False)
    assert resumable(store) == [6, 7]


def test_a_folder_without_anything_to_go_on_from_is_not_started_over(make_store: MakeStore) -> None:
    store = make_store(CheckpointConfig(keep_training_states=1))
    for update in (1, 2, 3):
        store.save(snapshot(update), best=False, required=False)
    shutil.rmtree(checkpoints_in(store.folder)[-1])
    with pytest.raises(DataError, match="no checkpoint in .* has a training state .* --finetune-from-model .*00000002"):
        make_store().restore()
    (checkpoints_in(store.folder)[-1] / "model.safetensors").write_bytes(b"damaged")  # the other one can be read
    with pytest.raises(DataError, match="no checkpoint in .* has a training state .* --finetune-from-model .*00000001"):
        make_store().restore()


@pytest.mark.parametrize("error", [PermissionError("not yours"), DataError("not yours")])
def test_a_folder_that_cannot_be_looked_through_is_a_warning(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fails(folder: Path) -> list[Path]:
        raise error

    store = make_store()
    monkeypatch.setattr(store_module.run_folder, "checkpoints_in", fails)
    assert store.save(snapshot(1), best=False, required=True) is not None
    assert "could not check which old checkpoints to delete: not yours" in caplog.text


def test_a_state_of_training_that_was_half_deleted_is_not_missed(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(CheckpointConfig(keep_training_states=1))
    store.save(snapshot(1), best=False, required=False)
    with monkeypatch.context() as patch:

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            drop_training_state(checkpoints_in(store.folder)[0])
    assert (store.folder / "checkpoint-0001-00000001" / "training.json").is_file() and resumable(store) == []
    store.save(snapshot(2), best=False, required=False)
    assert not (store.folder / "checkpoint-0001-00000001" / "training.json").exists() and resumable(store) == [2]


def test_a_state_of_training_that_cannot_be_deleted_is_a_warning(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(f"{path.name} is held")

    store = make_store(CheckpointConfig(keep_training_states=1))
    monkeypatch.setattr(store_module, "drop_training_state", refuse)
    for update in (1, 2):
        assert store.save(snapshot(update), best=False, required=False) is not None
    assert "checkpoint-0001-00000001 is held" in caplog.text and resumable(store) == [1, 2]


@pytest.mark.parametrize("free", [4 * 10**6 * 12 // 10, 4 * 10**6 * 12 // 10 - 1])
def test_short_space_is_said_before_the_first_checkpoint_too(
    make_store: MakeStore, free: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    large = replace(snapshot(1), model={"weight": torch.zeros(10**6)}, training=TrainingState({}, {"update": 1}))
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert store.save(large, best=False, required=False) is not None
    assert ("are free in" in caplog.text) == (free < 4.8 * 10**6)


def test_the_tokenizer_of_a_start_that_came_to_nothing_is_replaced(make_store: MakeStore, tmp_path: Path) -> None:
    """The corpus may have been made anew since."""
    folder = make_store().folder
    (folder / "tokenizer" / "more.json").write_text("old")
    (tmp_path / "corpus" / "tokenizer" / "pair.json").write_text('{"new": 1}')
    make_store()
    assert [path.name for path in (folder / "tokenizer").iterdir()] == ["pair.json"]
    assert (folder / "tokenizer" / "pair.json").read_text() == '{"new": 1}'


@pytest.mark.parametrize("name", ["config.yaml", "log.jsonl", "report.html", "manifest.json", "tokenizer/mine.txt"])
def test_files_of_something_else_are_left_alone(make_store: MakeStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "run" / "tokenizer").mkdir(parents=True)
    if name != "tokenizer/mine.txt":
        (tmp_path / "run" / "tokenizer").rmdir()
    (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(
        OutputError, match=f"run holds {name.split('/')[0]}, which no training run wrote; choose another"
    ):
        make_store()
    assert (tmp_path / "run" / name).read_text() == "mine"
    assert len([path for path in (tmp_path / "run").rglob("*") if path.is_file()]) == 1


def full_unless(monkeypatch: pytest.MonkeyPatch, room: Callable[[Path], bool]) -> None:
    """Let every checkpoint fail that has no ``room``."""
    write = store_module.write_checkpoint

    def written(path: Path, **parts: Any) -> None:
        if not room(path):
            raise StorageError("cannot write: No space left on device")
        write(path, **parts)

    monkeypatch.setattr(store_module, "write_checkpoint", written)


def test_where_space_is_short_what_may_go_afterwards_goes_before(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=1, keep_training_states=2))
    for update in (1, 2, 3):
        store.save(snapshot(update), best=update == 1, required=False)
    assert names(store) == [1, 2, 3] and resumable(store) == [2, 3]
    full_unless(monkeypatch, lambda path: names(store) == [1, 3])
    assert store.save(snapshot(4), best=False, required=False) is not None
    assert names(store) == [1, 3, 4] and resumable(store) == [3, 4]
    assert "space is short in" in caplog.text and "deleted checkpoint-0001-00000002 before" in caplog.text


@pytest.mark.parametrize(("harm", "whole"), [(None, 3), ("model.safetensors", 2), ("training.safetensors", 2)])
def test_the_newest_checkpoint_that_is_whole_stays_however_short_space_is(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, harm: str | None, whole: int
) -> None:
    store = make_store(CheckpointConfig(keep_interval_updates=1, keep_training_states=2))
    for update in (1, 2, 3):
        store.save(snapshot(update), best=False, required=False)
    assert names(store) == [2, 3]
    store.options.keep_training_states = 1
    if harm is not None:
        file = store.folder / "checkpoint-0001-00000003" / harm
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    full_unless(monkeypatch, lambda path: False)
    assert store.save(snapshot(4), best=False, required=False) is None
    assert names(store) == ([3] if whole == 3 else [2, 3])
    restored = make_store().restore()
    assert restored is not None and restored.info.update == whole


def test_a_checkpoint_that_the_run_folder_cannot_take_goes_to_the_fallback_folder(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store()
    store.fallback = replace(store, folder=tmp_path / "other" / "run-1")
    first = store.save(snapshot(1), best=True, required=False)
    with monkeypatch.context() as patch:
        full_unless(patch, lambda path: path.parent != store.folder)
        path = store.save(snapshot(2), best=True, required=True)
    assert path == tmp_path / "other" / "run-1" / "checkpoint-0001-00000002" and "instead: " in caplog.text
    assert store.last() == store.best() == store.newest() == path and store.newest(1) == first
    assert (path.parent / "tokenizer" / "pair.json").is_file()
    restored = store.restore()
    assert restored is not None and restored.path == path
    store.mend_pointers(restored, best=2)
    assert store.last() == path and json.loads((store.folder / "last.json").read_text())["checkpoint"].endswith("1")
    later = store.save(snapshot(3), best=False, required=False)
    assert later == store.last() == store.folder / "checkpoint-0001-00000003"


def test_of_two_checkpoints_of_an_update_the_one_of_the_later_epoch_is_the_newest(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full at the end of epoch 1; in epoch 2 no update was made before a signal."""
    store = make_store()
    store.fallback = replace(store, folder=tmp_path / "other" / "run-1")
    with monkeypatch.context() as patch:
        full_unless(patch, lambda path: path.parent != store.folder)
        store.save(snapshot(5), best=False, required=False)
    later = snapshot(5)
    path = store.save(replace(later, info=replace(later.info, epoch=2)), best=False, required=True)
    assert path == store.folder / "checkpoint-0002-00000005" == store.newest() == store.last()
    restored = store.restore()
    assert restored is not None and restored.path == path


def test_runs_share_a_fallback_folder_without_mixing() -> None:
    def folder(run: str) -> Path | None:
        return store_module.fallback_folder(CheckpointConfig(save_dir=run, fallback_dir="/spare"))

    found = {folder(run) for run in ("a/0", "b/0", "a/1")}
    assert len(found) == 3 and all(path is not None and path.parent == Path("/spare") for path in found)
    assert folder("a/0") == folder("./a/0") and store_module.fallback_folder(CheckpointConfig()) is None

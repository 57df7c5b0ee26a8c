"""When a run takes its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.distributed.world import World
from nmt.errors import OutputError
from nmt.storage.files import MANIFEST
from nmt.storage.lock import one_writer
from nmt.training.checkpoints.run_lock import RunLock


def test_a_new_folder_is_created_and_locked_only_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with RunLock(folder, World()) as claim:
        assert not folder.exists()
        claim.create()
        with pytest.raises(OutputError, match="is being written by"), one_writer(folder):
            pass
    with one_writer(folder):
        pass


def test_an_existing_folder_is_locked_at_once_and_once(tmp_path: Path) -> None:
    with RunLock(tmp_path, World()) as claim:
        with pytest.raises(OutputError, match="is being written by"), one_writer(tmp_path):
            pass
        claim.create()


def test_a_folder_in_which_another_process_has_trained_meanwhile_is_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoint-0001-00000001"
    with RunLock(tmp_path / "run", World()) as claim:
        checkpoint.mkdir(parents=True)
        (checkpoint / MANIFEST).touch()
        with pytest.raises(OutputError, match="another process trained in .* at the same time; repeat the command to"):
            claim.create()

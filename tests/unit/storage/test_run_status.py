"""How a run folder records the end of its last run."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import (
    AlreadyReported,
    DataError,
    Diverged,
    Interrupted,
    OutputError,
    RankLost,
    StorageError,
    UsageError,
)
from nmt.storage.lock import one_writer
from nmt.storage.run_status import described, record_failure, record_start, recorded, refuse_hopeless_restart
from nmt_cli.process import Terminated


def status_in(folder: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    return status


@pytest.mark.parametrize(
    ("error", "reason", "exit_status"),
    [
        (UsageError("a"), "usage", 2),
        (DataError("a"), "data", 65),
        (OutputError("a"), "output", 73),
        (StorageError("a"), "disk", 74),
        (OSError(errno.ENOSPC, "a"), "disk", 74),
        (Interrupted("a"), "preempted", 75),
        (Interrupted("a", 130), "interrupted", 130),
        (KeyboardInterrupt(), "interrupted", 130),
        (Diverged("a"), "diverged", 1),
        (RankLost("a"), "rank lost", 1),
        (ZeroDivisionError("a"), "defect", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_failure_is_recorded_with_its_reason_and_exit_status(
    tmp_path: Path, error: BaseException, reason: str, exit_status: int
) -> None:
    with pytest.raises(type(error)), recorded(tmp_path):
        record_start(tmp_path)
        assert (status_in(tmp_path)["reason"], status_in(tmp_path)["exit_status"]) == ("running", None)
        raise error
    assert (status_in(tmp_path)["reason"], status_in(tmp_path)["exit_status"]) == (reason, exit_status)


def test_a_finished_run_is_recorded_and_what_another_rank_tells_is_not(tmp_path: Path) -> None:
    with recorded(tmp_path):
        pass
    assert status_in(tmp_path)["exit_status"] == 0
    with pytest.raises(AlreadyReported), recorded(tmp_path):
        raise AlreadyReported("a", 2)
    assert status_in(tmp_path)["reason"] == "finished"


def test_the_status_of_a_run_that_still_writes_is_kept(tmp_path: Path) -> None:
    with one_writer(tmp_path):
        record_start(tmp_path)
        record_failure(tmp_path, OutputError("is being written"))
    assert status_in(tmp_path)["reason"] == "running"


def test_a_single_process_makes_no_folder_for_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record_failure(tmp_path / "run", UsageError("a"))
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    record_failure(tmp_path / "run", UsageError("a"))
    assert status_in(tmp_path / "run")["reason"] == "usage"


@pytest.mark.parametrize(
    ("error", "hopeless"), [(UsageError("a"), True), (Diverged("a"), True), (StorageError("a"), False)], ids=str
)
def test_a_restart_by_torchrun_ends_at_once_if_it_cannot_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, hopeless: bool
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    record_failure(tmp_path, error)
    refuse_hopeless_restart(tmp_path)  # the first start
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    if hopeless:
        with pytest.raises(AlreadyReported) as ended:
            refuse_hopeless_restart(tmp_path)
        assert ended.value.exit_status == error.exit_status  # type: ignore[attr-defined]
    else:
        refuse_hopeless_restart(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    refuse_hopeless_restart(tmp_path)


def test_a_signal_of_a_batch_system_before_training_listens_is_a_preemption() -> None:
    assert described(Terminated(signal.SIGUSR1)) == ("preempted", 75)
    assert described(KeyboardInterrupt()) == ("interrupted", 130)


def test_a_damaged_status_stops_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    for damaged in ('{"reason": "usage"}', '["usage"]', "{"):
        (tmp_path / "status.json").write_text(damaged, encoding="utf-8")
        refuse_hopeless_restart(tmp_path)

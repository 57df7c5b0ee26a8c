"""Callbacks are called on rank 0, and all ranks end together; from the command line with a plugin."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.storage.checkpoints import read_info
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy
from tests.distributed.processes import TINY, events, finish, start_two, status_in

PLUGIN = """
import os
from dataclasses import dataclass
from pathlib import Path

from nmt.reporting.callbacks import Callback, Stop, callbacks


@dataclass
class EnderConfig:
    stop_at: int = 0
    fail_at: int = 0


@callbacks.register("ender", EnderConfig)
class Ender(Callback):
    def __init__(self, config):
        self.config = config

    def on_update(self, event):
        Path(__file__).with_name(f"called-on-rank-{os.environ.get('RANK', '0')}").touch()
        if event.update == self.config.fail_at:
            raise ValueError("broken on purpose")
        if event.update == self.config.stop_at:
            return Stop("far enough", {"mine": 0.25})
"""


@pytest.fixture
def options(copy_corpus: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "ends.py").write_text(PLUGIN, encoding="utf-8")
    return [str(copy_corpus), *TINY, "--user-dir", str(tmp_path / "ends.py"), "--save-dir", str(tmp_path / "run")]


def ended(folder: Path) -> tuple[int, tuple[str, ...]]:
    info = read_info(checkpoints_in(folder)[-1])
    return info.update, info.reasons


@pytest.mark.timeout(300)
def test_two_ranks_stop_when_the_callback_of_rank_0_says_so(options: list[str], tmp_path: Path) -> None:
    status, log = finish(start_two(*options, "--callbacks", "ender:stop_at=3"))
    assert status == 0, log
    assert "done: stopped by Ender: far enough (update 3, epoch 1)" in log
    assert ended(tmp_path / "run") == (3, ("best", "final"))
    assert status_in(tmp_path / "run")["reason"] == "finished"
    logged = events(tmp_path / "run")
    assert [event.get("mine") for event in logged if event["event"] == "train"] == [None, None, 0.25]
    assert [event["ending"] for event in logged if event["event"] == "end"] == ["stopped by Ender: far enough"]
    assert [path.name for path in tmp_path.glob("called-*")] == ["called-on-rank-0"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_failure_ends_all_ranks_after_a_checkpoint_with_one_traceback(
    options: list[str], tmp_path: Path, ranks: int
) -> None:
    command = [*options, "--callbacks", "ender:fail_at=3"]
    if ranks == 2:
        status, log = finish(start_two(*command))
    else:
        result = run_copy("train", *command)
        status, log = result.returncode, result.stderr.decode()
    assert status == 1
    message = "callback Ender failed in on_update at update 3: ValueError: broken on purpose"
    assert log.count(f"CallbackError: {message}") == 1 and 'raise ValueError("broken on purpose")' in log
    assert ended(tmp_path / "run") == (3, ("callback",))
    assert status_in(tmp_path / "run")["message"] == message
    (stopped,) = [event for event in events(tmp_path / "run") if event["event"] == "stopped"]
    assert (stopped["cause"], stopped["message"]) == ("error", message)


def test_a_misspelt_callback_is_refused_before_anything_is_read(options: list[str]) -> None:
    result = run_copy("train", *options, "--callbacks", "endr")
    assert result.returncode == 2
    assert b"nmt-train: unknown callback 'endr' (did you mean 'ender'?); there are: ender" in result.stderr

"""torchrun starts all processes again after one has died; what a restart cannot mend is recorded, and ends them at once."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import torch

from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from tests.distributed.processes import (
    SCARCE,
    TINY,
    finish,
    run_two,
    second_of,
    start_torchrun,
    start_two,
    status_in,
    wait_for_updates,
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("wrong", "reason", "exit_status"),
    [
        pytest.param(["--lrr", "1"], "usage", 2, marks=pytest.mark.nightly),  # by day the test below, without torchrun
        (["--distributed-strategy", "fsdp", "--optimizer", "muon"], "usage", 2),
        pytest.param(
            ["training.max_bad_updates=1", "criterion.spoiled=true"], "diverged", 1, marks=pytest.mark.nightly
        ),
    ],
    ids=["before the ranks are joined", "afterwards", "in training"],
)
def test_what_a_restart_cannot_mend_is_told_once_and_recorded(
    copy_corpus: Path, tmp_path: Path, wrong: list[str], reason: str, exit_status: int
) -> None:
    folder = tmp_path / "run"
    more = [*SCARCE, *wrong] if reason == "diverged" else wrong
    options = ["-m", "nmt_cli.train", str(copy_corpus), *TINY, *more, "--save-dir", str(folder)]
    process = start_torchrun("--max-restarts=1", *options)
    _, log = process.communicate(timeout=300)
    assert process.returncode != 0
    status = status_in(folder)
    assert (status["reason"], status["exit_status"]) == (reason, exit_status), log
    told = [line for line in log.splitlines() if line.startswith("nmt-train: ")]
    assert len(told) == 1 and status["message"] in told[0], log
    assert log.count("training on cpu") <= 1


def test_an_error_of_the_command_line_is_recorded_in_the_run_folder_that_a_file_names(tmp_path: Path) -> None:
    """Ranks that torchrun starts again end as the first ones did."""
    file, folder = tmp_path / "run.yaml", tmp_path / "run"
    file.write_text(f"checkpoint: {{save_dir: {folder}}}", encoding="utf-8")
    count = "os.environ |= {{'TORCHELASTIC_RUN_ID': 'a', 'TORCHELASTIC_RESTART_COUNT': '{}'}}"
    exit_status, log = finish(start_two("--config", file, "--lrr", "1", before=count.format(0)))
    status = status_in(folder)
    assert (exit_status, status["reason"], status["exit_status"]) == (2, "usage", 2), log
    assert log == f"nmt-train: {status['message']}\n"
    assert finish(start_two("--config", file, "--lrr", "1", before=count.format(1))) == (2, "")


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_torchrun_starts_all_again_and_they_go_on_from_the_last_checkpoint(
    copy_corpus: Path, tmp_path: Path, strategy: str
) -> None:
    """A run one of whose processes is killed ends like one that nobody disturbed."""
    options = [str(copy_corpus), *TINY, "--save-interval-updates", "2", "--distributed-strategy", strategy]
    folder = tmp_path / "killed"
    process = start_torchrun("--max-restarts=1", "-m", "nmt_cli.train", *options, "--save-dir", str(folder))
    wait_for_updates(process, folder)
    os.kill(second_of(process), signal.SIGKILL)
    _, log = process.communicate(timeout=200)
    assert process.returncode == 0, log
    assert re.search(r"resumed after update [1-9]", log)
    run_two(*options, "--save-dir", str(tmp_path / "whole"))
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("killed", "whole"))
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name

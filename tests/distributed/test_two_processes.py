"""Two processes train what one does with twice the accumulation: the same figures, the same weights, one run folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.storage.checkpoints import checkpoints_in, read_checkpoint, read_info

TINY = (
    "model=transformer_tiny model.d_model=16 model.d_ff=24 model.num_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 model.dropout=0.2 --max-tokens 90 --lr 0.01 --warmup-updates 2 --clip-norm 1 --max-update 20 "
    "--validate-interval-updates 10 --valid-metrics bleu --valid-max-sentences 11 --search greedy --log-interval 1 "
    "--device cpu --seed 3"
).split()
TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "nmt_cli.train"]
ONE = ["-m", "nmt_cli.train"]


def start(program: list[str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *program, *arguments], stderr=subprocess.PIPE, text=True)


def run(program: list[str], *arguments: str) -> str:
    process = start(program, *arguments)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    return log


def wait_for_updates(process: subprocess.Popen[str], folder: Path) -> None:
    """Until the log has a few lines."""
    deadline = time.monotonic() + 120
    while not (folder / "log.jsonl").exists() or len(events(folder)) < 5:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def second_of(launcher: subprocess.Popen[str]) -> int:
    """The number of the second process that torchrun started."""
    children = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
    return sorted(int(number) for number in children.stdout.split())[1]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def assert_alike(folder: Path, other: Path, tolerance: float = 1e-5) -> None:
    """All figures of both logs, and the weights at the end."""
    compared = 0
    ours, theirs = ([event for event in events(one) if event["event"] != "start"] for one in (folder, other))
    for event, expected in zip(ours, theirs, strict=True):
        assert event.keys() == expected.keys()
        for name, value in expected.items():
            if name in ("seconds", "tokens_per_second", "memory_mb"):
                continue
            assert event[name] == (pytest.approx(value, rel=tolerance, abs=1e-7) if isinstance(value, float) else value)
            compared += isinstance(value, float)
    assert compared > 60
    weights, wanted = (read_checkpoint(checkpoints_in(one)[-1]).model for one in (folder, other))
    assert weights.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(weights[name], tensor, rtol=tolerance, atol=1e-5)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "criterion",
    [
        ("--criterion", "label_smoothed_cross_entropy"),
        ("--criterion", "r_drop", "--ema-decay", "0.9"),
        ("--criterion", "minimum_risk", "criterion.samples=4"),
    ],
    ids=lambda criterion: criterion[1],
)
def test_two_processes_equal_one_with_twice_the_accumulation(
    copy_corpus: Path, tmp_path: Path, criterion: tuple[str, ...]
) -> None:
    options = [str(copy_corpus), *TINY, *criterion]
    run(ONE, *options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    log = run(TWO, *options, "--update-freq", "2", "--save-dir", str(tmp_path / "two"))
    assert_alike(tmp_path / "two", tmp_path / "one")
    assert log.count("training on cpu") == 1  # only the first process speaks


@pytest.mark.timeout(600)
def test_another_number_of_processes_goes_on_with_the_same_batches(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY]
    run(ONE, *options, "--update-freq", "2", "--save-dir", str(tmp_path / "one"))
    short = [*options, "--max-update", "7", "--save-dir", str(tmp_path / "more")]
    run(TWO, *short, "--update-freq", "1")
    assert [info.update for info in map(read_info, checkpoints_in(tmp_path / "more"))][-1] == 7
    log = run(ONE, *options, "--update-freq", "2", "--save-dir", str(tmp_path / "more"))
    assert "an update was made of" not in log  # 2 x 1 batches, 1 x 2 batches
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("more", "one"))
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.timeout(600)
def test_a_changed_number_of_batches_in_an_update_is_warned_of(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, "--save-dir", str(tmp_path / "run")]
    run(ONE, *options, "--max-update", "4")
    log = run(TWO, *options, "--max-update", "6")
    assert "an update was made of 1 batches and now is of 2" in log
    assert read_info(checkpoints_in(tmp_path / "run")[-1]).update == 6


@pytest.mark.timeout(600)
def test_a_signal_to_one_process_stops_both_after_a_checkpoint(copy_corpus: Path, tmp_path: Path) -> None:
    """The run that goes on afterwards ends like one that was never stopped."""
    options = [str(copy_corpus), *TINY, "--update-freq", "1", "--max-update", "60"]
    folder = tmp_path / "stopped"
    process = start(TWO, *options, "--save-dir", str(folder))
    wait_for_updates(process, folder)
    os.kill(second_of(process), signal.SIGTERM)
    _, log = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "is saved in" in log and 'Traceback (most recent call last):\n  File "' + str(Path.cwd() / "nmt") not in log
    assert 0 < read_info(checkpoints_in(folder)[-1]).update < 60
    run(TWO, *options, "--save-dir", str(folder))
    run(TWO, *options, "--save-dir", str(tmp_path / "whole"))
    weights, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("stopped", "whole"))
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name


@pytest.mark.timeout(600)
def test_the_death_of_one_process_ends_the_other_with_a_sentence(copy_corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(TWO, str(copy_corpus), *TINY, "--max-update", "100000", "--save-dir", str(folder))
    wait_for_updates(process, folder)
    os.kill(second_of(process), signal.SIGKILL)
    _, log = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "process 0 lost the others: one of them has ended" in log


@pytest.mark.timeout(600)
def test_what_the_first_process_refuses_both_say_alike(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *TINY, "--max-update", "2", "--save-dir", str(tmp_path / "run")]
    run(ONE, *options)
    for checkpoint in checkpoints_in(tmp_path / "run"):
        shutil.rmtree(checkpoint / "manifest.json", ignore_errors=True)
        (checkpoint / "model.safetensors").write_bytes(b"damaged")
    process = start(TWO, *options)
    _, log = process.communicate(timeout=120)
    assert process.returncode != 0
    assert log.count("can be read") >= 1 and "Connection closed" not in log

"""Starting one or two training processes, and comparing what they leave."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from tests.commands import Copy, start_copy

GRACE = 30.0  # seconds

TINY = (
    "model=transformer_tiny model.d_model=16 model.d_ff=24 model.num_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 model.dropout=0.2 --max-tokens 90 --lr 0.01 --warmup-updates 2 --clip-norm 1 --max-update 20 "
    "--validate-interval-updates 10 --valid-metrics bleu --valid-max-sentences 11 --search greedy --max-len-b 4 "
    "--log-interval 1 --device cpu --seed 3 --no-html --no-count-flops"
).split()
SCARCE = ["--user-dir", str(Path(__file__).parent / "scarce"), "--criterion", "scarce", "model.dropout=0"]


def run_one(*arguments: str, **environment: str) -> str:
    """nmt-train to a good end: its log."""
    status, log = finish([start_copy("train", *arguments, **environment)])
    assert status == 0, log
    return log


def run_two(*arguments: str, timeout: float = 300) -> str:
    """The same in two processes: both logs."""
    status, log = finish(start_two(*arguments), timeout)
    assert status == 0, log
    return log


def start_two(*arguments: str | Path, command: str = "train", before: str = "", **environment: str) -> list[Copy]:
    """A command in two processes, as torchrun would start them, without the time that torchrun takes."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [
        start_copy(command, *arguments, before=before, **shared, **environment, RANK=rank, LOCAL_RANK=rank)
        for rank in "01"
    ]


def finish(processes: list[Copy], timeout: float = 300) -> tuple[int, str]:
    """The largest status, and all logs. As torchrun does it, one that is left over after another one failed is told to end:
    once in a hundred times gloo does not notice that the other side is gone."""
    with ThreadPoolExecutor(len(processes)) as threads:
        logs = [threads.submit(process.communicate, timeout=timeout) for process in processes]
        wait(logs, return_when=FIRST_COMPLETED)
        if any(process.returncode for process in processes):
            for number in (signal.SIGTERM, signal.SIGKILL):
                _, left = wait(logs, timeout=GRACE)
                for process, log in zip(processes, logs):
                    if log in left:
                        os.kill(process.pid, number)
        text = "".join(log.result()[1].decode() for log in logs)
    return max(abs(process.wait()) for process in processes), text


def start_torchrun(*arguments: str) -> subprocess.Popen[str]:
    """torchrun with two processes of nmt-train; options of torchrun come first."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def wait_for_updates(process: subprocess.Popen[str] | Copy, folder: Path) -> None:
    """Until the log has a few lines."""
    deadline = time.monotonic() + 120
    while not (folder / "log.jsonl").exists() or len(events(folder)) < 5:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def read_until(process: Copy, pattern: str) -> None:
    """Read the log up to the line that matches."""
    lines: list[str] = []
    while not re.search(pattern, "".join(lines[-1:])):
        lines.append(process.stderr.readline().decode())
        assert lines[-1], f"the log ended before {pattern!r}:\n" + "".join(lines)


def second_of(launcher: subprocess.Popen[str]) -> int:
    """The number of the second process that torchrun started."""
    children = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True, check=True)
    return sorted(int(number) for number in children.stdout.split())[1]


def events(folder: Path) -> list[dict[str, Any]]:
    """By update: that a checkpoint is on disk is recorded when it is."""
    found = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return sorted(found, key=lambda event: int(event["update"]))


def status_in(folder: Path) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    return status


def assert_alike(folder: Path, other: Path, tolerance: float = 1e-5) -> None:
    """All figures of both logs, and the weights at the end."""
    compared = 0
    ours, theirs = ([event for event in events(one) if event["event"] != "start"] for one in (folder, other))
    for event, expected in zip(ours, theirs, strict=True):
        assert event.keys() == expected.keys(), (event, expected)
        for name, value in expected.items():
            if name in ("seconds", "tokens_per_second", "memory_mb", "times", "processor_share"):
                continue
            assert event[name] == (pytest.approx(value, rel=tolerance, abs=1e-7) if isinstance(value, float) else value)
            compared += isinstance(value, float)
    assert compared > 60
    weights, wanted = (read_checkpoint(checkpoints_in(one)[-1]).model for one in (folder, other))
    assert weights.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(weights[name], tensor, rtol=tolerance, atol=1e-5)


def losses(folder: Path) -> Tensor:
    """Of the updates."""
    return torch.tensor([event["loss"] for event in events(folder) if event["event"] == "train"])

"""Commands on the device that stands in for a GPU: train, generate, serve, average, align; killed and resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

import nmt
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.tensor_file import read_tensors
from tests.commands import run_copy, start_copy
from tests.devices.stand_in import IS_CUDA, NAME
from tests.distributed.processes import TINY, read_until, run_one
from tests.serving.servers import running

KNOWN = [] if IS_CUDA else ["--user-dir", str(Path(__file__).parent / "with_second")]
ON_GPU = [NAME if part == "cpu" else part for part in TINY]
FP32 = ["--precision", "fp32"]


@pytest.fixture(scope="module")
def run(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run in bf16, the usual precision of a GPU."""
    folder = tmp_path_factory.mktemp("run") / "run"
    log = run_one(str(copy_corpus), *KNOWN, *ON_GPU, "--save-interval-updates", "8", "--save-dir", str(folder))
    assert f"training on {NAME}" in log and "bf16" in log
    return folder


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return [" ".join("abcdefgh"[number % 3 : 2 + number % 7]) for number in range(30)]


def command(name: str, *arguments: str | Path, stdin: str = "") -> str:
    done = run_copy(name, *arguments, stdin=stdin.encode())
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_translations_are_those_of_the_cpu_with_recorded_steps_as_well(run: Path, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    options = [*KNOWN, "--path", run, "--beam", "4", *FP32]
    on_cpu = command("generate", *options, "--device", "cpu", stdin=text)
    assert len(on_cpu.splitlines()) == len(lines)
    assert command("generate", *options, "--device", NAME, stdin=text) == on_cpu
    if IS_CUDA:
        assert command("generate", *options, "--device", NAME, "--cuda-graphs", stdin=text) == on_cpu
    assert command("generate", *KNOWN, "--path", run, "--device", NAME, "--precision", "bf16", stdin=text)


def test_a_server_answers_from_the_gpu(run: Path, lines: list[str]) -> None:
    expected = nmt.load(str(run), device="cpu").translate(lines)
    with running(*KNOWN, "--path", run, *FP32, device=NAME) as server:
        assert server.translate(*lines, source="src") == expected


def test_averaged_checkpoints_and_links_of_words(run: Path, lines: list[str], tmp_path: Path) -> None:
    command("average_checkpoints", "--inputs", run, "--num-update-checkpoints", "2", "--output", tmp_path / "mean")
    assert nmt.load(str(tmp_path / "mean"), device=NAME, precision="fp32").translate(lines)
    for side in ("src", "tgt"):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [*KNOWN, "--path", run, "--src", tmp_path / "src", "--ref", tmp_path / "tgt"]
    on_cpu, on_gpu = (command("align", *files, "--device", device).splitlines() for device in ("cpu", NAME))
    assert len(on_cpu) == len(on_gpu) == len(lines)
    here, there = (
        {(number, link) for number, line in enumerate(side) for link in line.split()} for side in (on_cpu, on_gpu)
    )
    assert len(here ^ there) < 0.05 * len(here), "in bf16 a few probabilities change places"


def test_a_run_that_was_killed_resumes_exactly(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *KNOWN, *ON_GPU, "--save-interval-updates", "4", "--max-update", "40"]
    run_one(*options, "--save-dir", str(tmp_path / "whole"))
    killed = start_copy("train", *options, "--save-dir", str(tmp_path / "parts"))
    read_until(killed, "update +12")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    log = run_one(*options, "--save-dir", str(tmp_path / "parts"))
    assert "resum" in log.lower()
    whole, parts = (
        read_tensors(checkpoints_in(tmp_path / name)[-1] / "model.safetensors") for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)

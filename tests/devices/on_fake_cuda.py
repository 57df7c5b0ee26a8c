"""Training on fake CUDA GPUs: with two, short of memory, compiled, by the doctor."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nmt.doctor import speed
from nmt.testing.subjects import load_preset
from tests.distributed.processes import (
    TINY,
    assert_alike,
    finish,
    losses,
    run_one,
    start_two,
)

WITHOUT_NCCL = ["--user-dir", str(Path(__file__).parent / "without_nccl")]
ON_GPU = [part if part != "cpu" else "cuda" for part in TINY]
FP32 = ["--precision", "fp32"]
TWO_GPUS = {"FAKE_CUDA_DEVICES": "2"}


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_gpus_equal_one_with_twice_the_accumulation(copy_corpus: Path, tmp_path: Path, strategy: str) -> None:
    options = [str(copy_corpus), *ON_GPU, *FP32, *WITHOUT_NCCL, "model.dropout=0"]
    run_one(*options, "--update-freq", "4", "--save-dir", str(tmp_path / "one"))
    two = [*options, "--update-freq", "2", "--distributed-strategy", strategy, "--save-dir", str(tmp_path / "two")]
    status, log = finish(start_two(*two, **TWO_GPUS))
    assert status == 0 and "training on cuda" in log, log
    assert_alike(tmp_path / "two", tmp_path / "one", 1e-4)


def test_a_gpu_with_little_memory_computes_in_halves(copy_corpus: Path, tmp_path: Path) -> None:
    large = ["model.d_model=128", "model.d_ff=512", "model.dropout=0", "--max-tokens", "800", "--max-update", "6"]
    options = [str(copy_corpus), *ON_GPU, *FP32, *large]
    run_one(*options, "--save-dir", str(tmp_path / "roomy"))
    log = run_one(*options, "--save-dir", str(tmp_path / "short"), FAKE_CUDA_MEMORY=str(15 * 2**20))
    assert "are split in halves" in log
    torch.testing.assert_close(losses(tmp_path / "short"), losses(tmp_path / "roomy"), rtol=1e-4, atol=0)


@pytest.mark.parametrize(("what", "name"), [("layers", "2 layers are"), ("step", "the step is")])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 1e-2)])
def test_what_is_compiled_learns_what_it_would_uncompiled(
    copy_corpus: Path, tmp_path: Path, what: str, name: str, precision: str, tolerance: float
) -> None:
    options = [str(copy_corpus), *ON_GPU, *WITHOUT_NCCL, "--precision", precision, "model.dropout=0"]
    run_one(*options, "--max-update", "10", "--save-dir", str(tmp_path / "plain"))
    log = run_one(*options, "--max-update", "10", "--compile", what, "--save-dir", str(tmp_path / "compiled"))
    assert f"{name} compiled: " in log and "uncompiled" not in log, log
    torch.testing.assert_close(losses(tmp_path / "compiled"), losses(tmp_path / "plain"), rtol=tolerance, atol=0)


SEGMENTS = """
import torch
from nmt.devices.kinds import device_of
assert device_of("cuda").grow_segments()
numbers = torch.ones(2**22, device="cuda")
print({segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}, float(numbers.sum()))
"""


def test_segments_that_grow_change_no_number(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *ON_GPU]
    run_one(*options, "--save-dir", str(tmp_path / "plain"))
    run_one(*options, "--expandable-segments", "--save-dir", str(tmp_path / "growing"))
    assert torch.equal(losses(tmp_path / "growing"), losses(tmp_path / "plain"))
    done = subprocess.run([sys.executable, "-c", SEGMENTS], capture_output=True, text=True, check=True)
    assert done.stdout == "{True} 4194304.0\n"


FALLS_OUT = """
from nmt.training.loop.updater import Updater
import os
if os.environ["RANK"] == "1":
    def fail(*_):
        raise RuntimeError("the card fell out")
    Updater.launch = fail
"""


@pytest.mark.timeout(120)
def test_a_rank_that_fails_ends_the_other_too(copy_corpus: Path, tmp_path: Path) -> None:
    options = [str(copy_corpus), *ON_GPU, *WITHOUT_NCCL, "--save-dir", str(tmp_path / "run")]
    first, second = start_two(*options, before=FALLS_OUT, **TWO_GPUS)
    logs = [process.communicate(timeout=60)[1].decode() for process in (second, first)]
    assert (second.wait(), first.wait()) == (1, 1)
    assert "the card fell out" in logs[0] and "Traceback" not in logs[1], logs[1]


CHECKS = f"""
import torch
from nmt.doctor import runs
runs.TRAINING.extend({WITHOUT_NCCL})
gpu = torch.device("cuda", 0)
print(runs.several_ranks(gpu, "ddp"))
print(runs.several_ranks(gpu, "fsdp"))
print(runs.killed_rank(gpu))
"""


def test_the_doctor_trains_with_two_gpus() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECKS], capture_output=True, text=True, check=False, env=os.environ | TWO_GPUS
    )
    ddp, fsdp, killed = done.stdout.splitlines()
    assert ddp.startswith("10 updates of 2 ranks") and fsdp.startswith("10 updates of 2 ranks"), done.stderr
    assert killed.startswith("the other rank ended")


def test_the_doctor_measures_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "TOKENS", 400)
    monkeypatch.setattr(speed, "UPDATES", 1)
    small = replace(load_preset(speed.BASE), encoder_layers=1, decoder_layers=1)
    monkeypatch.setattr(speed, "load_preset", lambda preset: small)
    assert re.fullmatch(
        r"[\d,]+ target tokens/s in bf16, updates of 400 tokens, \d+\.\d GiB; \d+% of the matrix-product rate",
        speed.training(torch.device("cuda", 0), speed.BASE),
    )

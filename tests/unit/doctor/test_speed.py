"""The speed of a device, and what is recorded of its faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nmt.devices import faults
from nmt.devices.faults import FastPath, hardware_name, recorded_faults
from nmt.devices.kinds import Device
from nmt.doctor import speed
from nmt.doctor.outcomes import Check, Outcome, Result, Skipped, results
from nmt.doctor.report import record
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig
from nmt.testing.subjects import load_preset

CPU = torch.device("cpu")
SMALL = TransformerConfig(1, 1, d_model=32, d_ff=64, num_heads=2)


def test_the_speed_of_training_is_given_with_its_share_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "VOCABULARY", 100)
    monkeypatch.setattr(speed, "load_preset", {speed.BASE: SMALL}.__getitem__)
    assert "TFLOP/s in fp32" in speed.products(CPU)
    found = speed.training(CPU, speed.BASE)
    assert "target tokens/s in fp32, updates of 500 tokens; " in found and found.endswith(
        "% of the matrix-product rate"
    )
    monkeypatch.setattr(speed, "product_rate", lambda *_: 1e9)
    slow = speed.training(CPU, speed.BASE)
    monkeypatch.setattr(speed, "product_rate", lambda *_: 1e15)
    assert "; 0% of" in speed.training(CPU, speed.BASE) and "; 0% of" not in slow


def test_updates_become_smaller_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[int]()

    def training(device: torch.device, config: TransformerConfig, tokens: int) -> str:
        tried.append(tokens)
        if tokens > 200:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "fast"

    monkeypatch.setattr(speed, "_training", training)
    assert speed.training(CPU, speed.BASE) == "fast" and tried == [500, 250, 125]
    monkeypatch.setattr(speed, "TOKENS_OF_A_CPU", 400)
    with pytest.raises(torch.OutOfMemoryError):
        monkeypatch.setattr(speed, "LENGTH", 201)  # a sentence does not fit
        speed.training(CPU, speed.BASE)


def test_a_cpu_does_not_train_the_big_model() -> None:
    with pytest.raises(Skipped, match="takes too long on a CPU"):
        speed.training(CPU, speed.BIG)


@pytest.mark.parametrize(("preset", "millions"), [(speed.BASE, 63), (speed.BIG, 214)])
def test_models_have_the_sizes_of_the_paper(preset: str, millions: int) -> None:
    with torch.device("meta"):
        model = models.build(load_preset(preset), VocabularySizes(speed.VOCABULARY, speed.VOCABULARY, True))
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(faults, "_avoided", {})
    return tmp_path / "cache/devices.json"


def fails(device: torch.device) -> str:
    raise RuntimeError("no kernel image")


def test_paths_that_fail_are_recorded_until_they_pass(file: Path) -> None:
    checks = [Check("bf16", fails, FastPath.bf16), Check("tf32", str, FastPath.tf32), Check("other", fails)]
    name = hardware_name(CPU)
    assert record([CPU], list(results(checks, [CPU]))) == [
        f"not selected automatically on {name}: bf16",
        f"record: {file}",
    ]
    assert recorded_faults(CPU) == {FastPath.bf16}
    file.write_text(json.dumps({**json.loads(file.read_text()), "another GPU": {"faults": ["fp16"]}}))
    passes = [Check("bf16", str, FastPath.bf16)]
    assert record([CPU], list(results(passes, [CPU]))) == [f"record: {file}"]
    assert recorded_faults(CPU) == frozenset()
    assert json.loads(file.read_text())["another GPU"] == {"faults": ["fp16"]}


def test_devices_of_one_name_share_what_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [torch.device("cuda", number) for number in range(2)]
    monkeypatch.setattr("nmt.doctor.report.hardware_name", lambda device: "GPU")
    monkeypatch.setattr("nmt.doctor.report.versions", lambda device: {"torch": "2"})
    outcomes = [
        Result(f"cuda:{n}", "bf16", (Outcome.passed, Outcome.failed)[n], "", 0.0, FastPath.bf16) for n in range(2)
    ]
    assert record(gpus, outcomes)[0] == "not selected automatically on GPU: bf16"
    assert json.loads(file.read_text()) == {"GPU": {"torch": "2", "faults": ["bf16"]}}


def test_a_folder_that_cannot_be_written_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NMT_CACHE", "/dev/null")
    assert record([CPU], []) == []
    assert "could not record the results: " in caplog.text


def test_checks_try_again_what_was_avoided(file: Path) -> None:
    found = list[bool]()

    def avoids_again(device: torch.device) -> str:
        found.append(faults.avoids(device, FastPath.bf16))
        faults.avoid(device, [FastPath.bf16])  # as a run with a record does
        return ""

    list(results([Check("first", avoids_again), Check("second", avoids_again)], [CPU]))
    assert found == [False, False]


def test_a_gpu_multiplies_in_its_fastest_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "computes_bf16", lambda device: True)
    monkeypatch.setattr(speed, "on_cpu", lambda device: False)
    assert speed.products(CPU).endswith("TFLOP/s in bf16")

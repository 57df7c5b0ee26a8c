"""What nmt-doctor found wrong on a device, and who avoids it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt.config.choices import Precision
from nmt.devices import faults, half_precision
from nmt.devices.faults import FastPath, avoid, avoids, hardware_name, recorded_faults, versions
from nmt.devices.kinds import Cuda, Device
from nmt.models.transformer import attention_kernels
from nmt.models.transformer.mask import Mask
from nmt.optim.torch_optimizers import runs_fused
from nmt.training.loop.learner import choose_precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The record, which is not there yet; nothing is decided."""
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    monkeypatch.setattr(faults, "_avoided", {})
    yield tmp_path / "devices.json"


def entry(**changes: object) -> dict[str, object]:
    return {hardware_name(CPU): {**versions(CPU), "faults": ["bf16", "fused_attention"], **changes}}


def test_where_nothing_is_recorded_nothing_is_avoided() -> None:
    assert recorded_faults(CPU) == frozenset() and not avoids(CPU, FastPath.bf16)


def test_what_failed_is_avoided_and_told_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(json.dumps(entry()))
    with caplog.at_level("INFO", "nmt"):
        assert avoids(CPU, FastPath.bf16) and avoids(CPU, FastPath.fused_attention)
        assert not avoids(CPU, FastPath.fp16)
    assert [record.message for record in caplog.records] == [
        "not selected automatically on cpu, because nmt-doctor failed: bf16, fused attention"
    ]


@pytest.mark.parametrize("changed", [{"torch": "2.0"}, {"driver": "500"}])
def test_an_entry_for_other_versions_is_ignored_with_a_line(
    file: Path, changed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(json.dumps(entry(**changed)))
    with caplog.at_level("INFO", "nmt"):
        assert recorded_faults(CPU) == frozenset()
    ((name, before),) = changed.items()
    assert f"made with {name} {before}, now {versions(CPU)[name]}; run nmt-doctor --full again" in caplog.text


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "\x00", json.dumps({hardware_name(CPU): ["bf16"]})])
def test_a_damaged_file_stops_nothing(file: Path, text: str) -> None:
    file.write_text(text)
    assert recorded_faults(CPU) == frozenset()


def test_faults_that_this_version_does_not_know_are_ignored(file: Path) -> None:
    file.write_text(json.dumps(entry(faults=["bf16", "warp drive", 7])))
    assert recorded_faults(CPU) == {FastPath.bf16}


def test_automatic_precisions_avoid_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "computes_bf16", lambda device: True)
    monkeypatch.setattr(Device, "halves", True)
    large = {"width": 1024, "vocabulary": 32_000}
    assert half_precision("cpu") is Precision.bf16
    assert choose_precision(Precision.auto, CPU, **large) is Precision.bf16
    avoid(CPU, [FastPath.bf16])
    assert half_precision("cpu") is Precision.fp16
    assert choose_precision(Precision.auto, CPU, **large) is Precision.fp32
    assert choose_precision(Precision.bf16, CPU, **large) is Precision.bf16, "an option decides"
    assert choose_precision(Precision.auto, CPU, **large, before=Precision.bf16) is Precision.bf16, "the run keeps it"
    avoid(CPU, [FastPath.bf16, FastPath.fp16])
    assert half_precision("cpu") is Precision.fp32


def test_other_paths_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "skips_updates", True)
    groups = [{"params": [("weight", torch.nn.Parameter(torch.ones(2)))]}]
    assert runs_fused(groups) is True
    avoid(CPU, [FastPath.fused_optimizer])
    assert runs_fused(groups) is None
    long = torch.zeros(1, 1, 300, 8)
    given = object()
    monkeypatch.setattr(attention_kernels.F, "scaled_dot_product_attention", lambda *_, **__: "kernel")
    by_kernel = [
        lambda: attention_kernels.by_kernel(lambda *_: given, long, long, long, Mask(None), scale=1.0, dropout=0.0)
    ]
    assert by_kernel[0]() == "kernel"
    avoid(CPU, [FastPath.fused_attention])
    assert by_kernel[0]() is given


def test_the_kernel_without_padding_is_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "attends_flat", lambda device: True)
    monkeypatch.setattr(attention_kernels, "kernel_agrees", lambda *_: True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention_kernels.supports_flat_batches(CPU, 32)
        avoid(CPU, [FastPath.flat_attention])
        assert not attention_kernels.supports_flat_batches(CPU, 32)


def test_the_driver_of_a_gpu_is_read_from_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: {"/sys/module/nvidia/version": "580.1\n"}[str(path)])
    assert Cuda(torch.device("cuda")).driver == "580.1"

    def absent(path: Path, encoding: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    assert Cuda(torch.device("cuda")).driver == "unknown"

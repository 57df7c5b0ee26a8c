"""Choosing a device by name."""

from __future__ import annotations

import sys

import pytest
import torch

from nmt import devices
from nmt.config.choices import Precision
from nmt.devices import choose_device, device_named, make_current, parameter_type, require_precision
from nmt.errors import DeviceError, UsageError


def test_auto_takes_a_gpu_only_where_there_is_one():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch is asked")
def test_where_no_driver_is_torch_is_not_imported_to_look_for_a_gpu(monkeypatch):
    monkeypatch.setattr(devices, "_has_driver", lambda: False)
    monkeypatch.delitem(sys.modules, "torch")
    assert device_named("auto") == "cpu" and "torch" not in sys.modules


def test_cpu_is_always_there():
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["banana", "gpu", "meta", "cuda:x", ""])
def test_unknown_device_is_refused_with_the_choices(name):
    with pytest.raises(UsageError, match="auto, cpu, cuda"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_absent_gpu_is_a_device_error_that_says_what_was_found(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=rf"{name}.*torch {torch.__version__}".replace("+", r"\+")):
        choose_device(name)


def test_number_of_a_gpu_that_is_not_there_is_a_device_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(DeviceError, match="only 2 GPUs"):
        choose_device("cuda:2")


def test_precision_decides_the_type_of_parameters():
    cpu = torch.device("cpu")
    assert parameter_type(cpu, Precision.fp32) is torch.float32
    assert parameter_type(cpu, Precision.auto) is torch.float32
    assert parameter_type(cpu, Precision.bf16) is torch.bfloat16
    assert parameter_type(torch.device("cuda"), Precision.fp16) is torch.float16


def test_half_precision_of_the_output_layer_is_for_training() -> None:
    with pytest.raises(UsageError, match="bf16_output is for training; translate with --precision fp32"):
        parameter_type(torch.device("cpu"), Precision.bf16_output)


def test_fp16_on_a_cpu_is_refused() -> None:
    with pytest.raises(UsageError, match="fp16 is for GPUs; on a CPU use --precision bf16"):
        require_precision(torch.device("cpu"), Precision.fp16)


def test_bf16_on_a_gpu_that_would_emulate_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.devices.computes_bf16", lambda device: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    for precision in (Precision.bf16, Precision.bf16_output):
        with pytest.raises(DeviceError, match="Tesla V100 cannot compute in bf16; use --precision fp16 or fp32"):
            require_precision(torch.device("cuda"), precision)


@pytest.mark.parametrize(("name", "current"), [("cpu", []), ("cuda", []), ("cuda:1", [torch.device("cuda:1")])])
def test_a_gpu_that_is_named_by_number_becomes_the_current_one(
    monkeypatch: pytest.MonkeyPatch, name: str, current: list[torch.device]
) -> None:
    set_to = list[torch.device]()
    monkeypatch.setattr(torch.cuda, "set_device", set_to.append)
    make_current(torch.device(name))
    assert set_to == current

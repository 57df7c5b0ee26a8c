"""Choosing a device by name."""

from __future__ import annotations

import pytest
import torch

from nmt.config.sections import Precision
from nmt.devices import choose_device, parameter_type, precision_named
from nmt.errors import DeviceError, UsageError


def test_auto_takes_a_gpu_only_where_there_is_one():
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


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
    assert parameter_type(cpu, Precision.bf16) is torch.bfloat16


@pytest.mark.parametrize("name", ["bf16", Precision.bf16])
def test_a_precision_is_known_by_its_name(name: Precision | str) -> None:
    assert precision_named(name) is Precision.bf16


def test_an_unknown_precision_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="precision='fp8' is none of fp32, bf16"):
        precision_named("fp8")

"""Choosing a device by name."""

from __future__ import annotations

import sys

import pytest
import torch

from nmt import devices
from nmt.config.choices import Precision
from nmt.devices import (
    choose_device,
    device_named,
    is_shortage,
    make_current,
    own_device,
    parameter_type,
    require_precision,
)
from nmt.devices.kinds import Cuda
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
    with pytest.raises(
        DeviceError, match="cuda:2 does not exist: this machine has cuda:0 and cuda:1; choose one of them"
    ):
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
    monkeypatch.setattr(Cuda, "computes_bf16", lambda device: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    for precision in (Precision.bf16, Precision.bf16_output):
        with pytest.raises(DeviceError, match="Tesla V100 cannot compute in bf16; use --precision fp16 or fp32"):
            require_precision(torch.device("cuda"), precision)


@pytest.mark.parametrize(("name", "current"), [("cpu", []), ("cuda", []), ("cuda:1", [1])])
def test_a_gpu_that_is_named_by_number_becomes_the_current_one(
    monkeypatch: pytest.MonkeyPatch, name: str, current: list[int]
) -> None:
    set_to = list[int]()
    monkeypatch.setattr(torch.accelerator, "set_device_index", set_to.append)
    make_current(torch.device(name))
    assert set_to == current


def card(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let torch find so many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ({}, "cuda:3"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, "cuda:3"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, "cuda:0"),
        ({"ROCR_VISIBLE_DEVICES": "3"}, "cuda:0"),
    ],
)
def test_a_rank_has_the_gpu_of_its_number_or_the_only_one_that_it_is_shown(
    visible: dict[str, str], expected: str
) -> None:
    """Slurm shows each task its own GPU, as number 0, if told --gpus-per-task."""
    assert own_device("cuda", {"LOCAL_RANK": "3", "WORLD_SIZE": "8", **visible}) == expected


def test_of_one_gpu_only_the_first_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, 1)
    assert device_named("cuda:0") == "cuda:0"
    with pytest.raises(DeviceError, match="device.name=cuda:1 does not exist: this machine has only cuda:0; choose it"):
        device_named("cuda:1")


@pytest.mark.parametrize(("count", "there"), [(2, "cuda:0 and cuda:1"), (8, "cuda:0 to cuda:7")])
def test_an_unknown_gpu_is_refused_with_those_of_the_machine(
    count: int, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(monkeypatch, count)
    message = f"device.name=cuda:9 does not exist: this machine has {there}; choose one of them"
    with pytest.raises(DeviceError, match=message):
        device_named("cuda:9")


@pytest.mark.parametrize("name", ["mps", "xpu", "xpu:1"])
def test_gpus_of_other_makers_are_chosen_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=f"device.name={name} does not exist: no GPU can be used"):
        device_named(name)


def test_the_gpu_of_a_mac_is_taken_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, expected in (("mps", "cpu"), ("xpu", "xpu"), ("cuda", "cuda")):
        monkeypatch.setattr(
            torch.accelerator, "current_accelerator", lambda check_available, kind=kind: torch.device(kind)
        )
        assert device_named("auto") == expected


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.0 GB, other allocations: 1 MB)"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("NCCL error: unhandled cuda error, out of memory"),
    ],
)
def test_a_shortage_of_memory_is_recognized_in_each_part_of_torch(error: Exception) -> None:
    assert is_shortage(error)


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: an illegal memory access"), MemoryError("out of memory")])
def test_other_errors_are_no_shortage(error: Exception) -> None:
    assert not is_shortage(error)

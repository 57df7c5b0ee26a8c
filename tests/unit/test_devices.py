"""Choosing a device by name."""

from __future__ import annotations

import sys

import pytest
import torch

from nmt import devices
from nmt.config.choices import Precision
from nmt.devices import (
    SPIN_COUNT,
    WAIT_VARIABLES,
    choose_device,
    count_threads,
    device_named,
    limit_spinning,
    make_current,
    parameter_type,
    processor_name,
    require_precision,
    set_threads,
    usable_cores,
)
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


def test_threads_are_those_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    set_threads(3)
    set_threads(None)
    assert asked == [3], "without a wish the environment's number stays"


@pytest.mark.parametrize(("cores", "torchs", "expected"), [(2, 64, 2), (64, 32, 32)])
def test_without_a_wish_there_is_a_thread_for_each_core_that_may_be_used(cores, torchs, expected, monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: torchs)
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    set_threads(None)
    assert asked == [expected]


def test_before_torch_is_imported_threads_are_as_wished_or_as_the_environment_says(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5,2")
    assert (count_threads(3), count_threads(None)) == (3, 5)


@pytest.mark.parametrize("variable", WAIT_VARIABLES)
def test_a_wait_variable_of_the_user_wins(variable: str) -> None:
    environment = {variable: "1"}
    limit_spinning(environment)
    assert environment == {variable: "1"}


def test_without_a_wait_variable_idle_threads_sleep_early() -> None:
    environment = {"OMP_NUM_THREADS": "2"}
    limit_spinning(environment)
    assert environment == {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": str(SPIN_COUNT)}


@pytest.mark.parametrize(
    ("siblings", "expected"), [(["0,2", "1,3", "0,2", "1,3"], 2), (["0", "1", "2", "3"], 4), ([], 4)]
)
def test_a_core_that_looks_like_two_gets_one_thread(siblings, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(4)), raising=False)
    monkeypatch.setattr(devices, "_SHARES_OF_TIME", [])
    monkeypatch.setattr(devices, "_TOPOLOGY", tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for number, text in enumerate(siblings):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "thread_siblings_list").write_text(f"{text}\n")
    assert count_threads(None) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (None, 8),
        ("max 100000", 8),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 8),
    ],
)
def test_a_container_has_as_many_cores_as_its_share_is_worth(share, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(devices, "_SHARES_OF_TIME", [[tmp_path / "cpu.max"], [tmp_path / "quota", tmp_path / "period"]])
    if share is not None:
        (tmp_path / "cpu.max").write_text(f"{share}\n")
    assert usable_cores() == expected
    if share is not None:
        (tmp_path / "cpu.max").unlink()
        for name, figure in zip(("quota", "period"), share.replace("max", "-1").split()):
            (tmp_path / name).write_text(f"{figure}\n")
        assert usable_cores() == expected


@pytest.mark.parametrize(("name", "current"), [("cpu", []), ("cuda", []), ("cuda:1", [torch.device("cuda:1")])])
def test_a_gpu_that_is_named_by_number_becomes_the_current_one(
    monkeypatch: pytest.MonkeyPatch, name: str, current: list[torch.device]
) -> None:
    set_to = list[torch.device]()
    monkeypatch.setattr(torch.cuda, "set_device", set_to.append)
    make_current(torch.device(name))
    assert set_to == current


def test_the_processor_has_the_name_that_the_system_gives_it(monkeypatch, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9\n\nprocessor\t: 1\n")
    monkeypatch.setattr(devices, "_PROCESSORS", tmp_path / "cpuinfo")
    assert processor_name() == "AMD EPYC 9"
    monkeypatch.setattr(devices, "_PROCESSORS", tmp_path / "none")
    assert processor_name() == (devices.platform.processor() or devices.platform.machine())

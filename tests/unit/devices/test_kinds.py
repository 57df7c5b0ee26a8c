"""What differs between kinds of device, as far as it can be tested without one of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.devices import copies as packing
from nmt.devices import kinds
from nmt.devices.kinds import KINDS, Accelerator, Cuda, Device, Mps, Rocm, Xpu, device_of

CPU = torch.device("cpu")


def test_each_name_has_the_object_of_its_kind_and_a_plug_in_the_general_one() -> None:
    assert {name: type(device_of(name)) for name in ("cpu", "cuda", "cuda:1", "mps", "xpu", "meta")} == {
        "cpu": Device,
        "cuda": Cuda,
        "cuda:1": Cuda,
        "mps": Mps,
        "xpu": Xpu,
        "meta": Accelerator,
    }
    assert device_of("cuda:1") is device_of(torch.device("cuda", 1)) and str(device_of("cuda:1")) == "cuda:1"
    assert device_of(torch.zeros(1)) is device_of("cpu")


def test_a_gpu_of_amd_is_told_from_one_of_nvidia() -> None:
    assert KINDS["cuda"] is (Cuda if torch.version.hip is None else Rocm)
    assert not Rocm(torch.device("cuda")).attends_flat()


@pytest.mark.parametrize(("capability", "flat"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_attention_without_padding_is_for_ampere_and_newer(
    capability: tuple[int, int], flat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert Cuda(torch.device("cuda")).attends_flat() is flat


@pytest.mark.parametrize("device", [Device(CPU), Accelerator(CPU)])
def test_tensors_are_fetched_as_they_are(device: Device) -> None:
    tensors = [torch.arange(6).view(2, 3).T, torch.tensor([0.5, -1.0]), torch.tensor([True, False]), torch.zeros(0, 4)]
    arrays = device.fetched(*tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert array.shape == tuple(tensor.shape) and (array == tensor.numpy()).all()
        assert array.dtype == tensor.numpy().dtype
    assert (device.fetched(tensors[0])[0] == tensors[0].numpy()).all()


def test_an_accelerator_is_waited_for_once_for_several_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, copy = list[int](), Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: copies.append(tensor.numel()) or copy(tensor))
    Accelerator(CPU).fetched(torch.arange(3), torch.zeros(2))
    assert copies == [3 * 8 + 2 * 4]


class Event:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def synchronize(self) -> None:
        self.log.append("waited")


class Stream:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def record_event(self) -> Event:
        self.log.append("recorded")
        return Event(self.log)


def test_numbers_leave_a_card_without_being_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that is none: memory that it writes to by itself, a copy, an event behind it."""
    log, empty, copy = list[str](), torch.empty, Tensor.copy_

    def pinned(shape: Any, *, dtype: torch.dtype, pin_memory: bool) -> Tensor:
        log.append(f"pinned {pin_memory}")
        return empty(shape, dtype=dtype)

    def copied(self: Tensor, other: Tensor, *, non_blocking: bool) -> Tensor:
        log.append(f"copied, waiting {not non_blocking}")
        return copy(self, other)

    monkeypatch.setattr(torch, "empty", pinned)
    monkeypatch.setattr(Tensor, "copy_", copied)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: Stream(log))
    arriving = Cuda(torch.device("cuda")).fetch_later(torch.tensor([6.0, 5.0]))
    assert log == ["pinned True", "copied, waiting False", "recorded"]
    assert arriving.wait().tolist() == [6.0, 5.0] and log[3:] == ["waited"]


@pytest.mark.parametrize("device", [Device(CPU), Accelerator(CPU), Mps(CPU)])
def test_where_nothing_copies_aside_numbers_are_there_at_once(device: Device) -> None:
    assert device.fetch_later(torch.tensor([6.0])).wait().tolist() == [6.0]


def test_numbers_go_to_a_card_from_pinned_memory_and_else_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log, to = list[Any](), Tensor.to
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: log.append("pinned") or tensor)

    def moved(tensor: Tensor, device: Any, *, non_blocking: bool = False) -> Tensor:
        log.append((str(device), non_blocking))
        return tensor

    monkeypatch.setattr(Tensor, "to", moved)
    Cuda(torch.device("cuda", 1)).sent(np.arange(3))
    Accelerator(torch.device("meta")).sent(np.arange(3))
    monkeypatch.setattr(Tensor, "to", to)
    assert log == ["pinned", ("cuda:1", True), ("meta", False)]
    assert Device(CPU).sent(np.arange(3)).tolist() == [0, 1, 2]


class Bare:
    """A module of a plug-in that has nothing but what torch demands."""


class Complete:
    """A module that has everything."""

    @staticmethod
    def get_device_name(device: torch.device) -> str:
        return "Chip 1"

    @staticmethod
    def max_memory_allocated(device: torch.device) -> int:
        return 70

    @staticmethod
    def max_memory_reserved(device: torch.device) -> int:
        return 90

    @staticmethod
    def memory_reserved(device: torch.device) -> int:
        return 80

    @staticmethod
    def mem_get_info(device: torch.device) -> tuple[int, int]:
        return 100, 200  # others hold 20

    @staticmethod
    def is_bf16_supported() -> bool:
        return True


def of_module(module: Any, monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return Accelerator(torch.device("meta"))


@pytest.mark.parametrize("device", [Device(CPU), Accelerator(CPU)])
def test_copies_are_complete_contiguous_and_of_their_own(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MOST_PACKED", 40)
    tensors = [torch.arange(6.0).view(2, 3).T, torch.ones(3, dtype=torch.bfloat16), torch.zeros(0), torch.arange(20)]
    copies = device.copied(tensors)
    for copy, tensor in zip(copies, tensors, strict=True):
        assert torch.equal(copy, tensor) and copy.dtype == tensor.dtype and copy.is_contiguous()
    tensors[3].zero_()
    assert copies[3].tolist() == list(range(20))


def test_what_a_plug_in_lacks_is_unknown_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = of_module(Bare, monkeypatch)
    assert (bare.hardware, bare.computes_bf16(), bare.facts()) == ("meta", False, {"gpu": "meta"})
    assert (bare.peak_memory(), bare.most_memory(), bare.reserved_share()) == (None, None, None)
    bare.release_memory()
    bare.reset_peak()


def test_memory_of_others_is_not_counted_as_room(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = of_module(Complete, monkeypatch)
    assert (complete.peak_memory(), complete.most_memory(), complete.reserved_share()) == (70, 180, 0.5)
    assert (complete.hardware, complete.computes_bf16()) == ("Chip 1", True)


def test_a_cpu_asks_the_system_for_memory() -> None:
    cpu = device_of("cpu")
    assert (cpu.peak_memory(), cpu.most_memory(), cpu.reserved_share()) == (None, None, None)
    assert cpu.facts() == {} and cpu.backend == "gloo" and not cpu.queues


def test_processes_exchange_by_the_library_of_their_device() -> None:
    assert device_of("cuda:1").backend == "cpu:gloo,cuda:nccl"


def test_sums_on_a_mac_are_in_float32() -> None:
    assert device_of("mps").exact is torch.float32 and device_of("cuda").exact is torch.float64


def test_the_memory_of_a_mac_is_that_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 30)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 120)
    mps = kinds.device_of("mps")
    assert (mps.peak_memory(), mps.most_memory(), mps.reserved_share()) == (30, 120, 0.25)

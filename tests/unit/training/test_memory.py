"""The memory that a run is said to take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import nmt.training.memory
from nmt.training.memory import peak_memory

CPU = torch.device("cpu")


@pytest.mark.parametrize("status", ["/proc/self/status", "/nowhere"])
def test_the_peak_contains_what_was_held_and_does_not_fall(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nmt.training.memory, "_STATUS", Path(status))
    before = peak_memory(CPU)
    held = torch.ones(before // 4)  # as many bytes as the peak: more than was ever held
    after = peak_memory(CPU)
    assert held.sum() > 0 and after >= before + 0.5 * held.nbytes
    del held
    assert peak_memory(CPU) >= after


def test_on_a_gpu_it_is_what_tensors_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000 + device.index)
    assert peak_memory(torch.device("cuda", 1)) == 1001

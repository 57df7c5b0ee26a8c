"""What nmt-doctor tells of the machine."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch

import nmt
from nmt.devices.faults import FastPath
from nmt.doctor.facts import devices, facts


def test_a_report_has_versions_machine_settings_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    known = facts(None)
    assert list(known) == ["versions", "machine", "settings", "devices"]
    assert known["versions"]["nmt"] == nmt.__version__ and known["versions"]["torch"] == torch.__version__
    assert known["settings"]["threads"] == 3 and known["settings"]["OMP_NUM_THREADS"] == "3"
    assert known["devices"]["cpu"].startswith("CPU; fp32")
    assert facts(5)["settings"]["threads"] == 5


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "sacrebleu":
            raise metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert facts(None)["versions"]["sacrebleu"] == "not installed"


def test_all_cards_are_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [str(device) for device in devices()] == ["cpu", "cuda:0", "cuda:1"]


def test_what_was_found_wrong_before_is_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.doctor.facts.recorded_faults", lambda device: {FastPath.bf16, FastPath.tf32})
    assert facts(None)["devices"]["cpu"].endswith("; failed in --full: bf16, tf32")

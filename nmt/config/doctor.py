"""The options of nmt-doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.config.common_options import OverwriteOption, ThreadsOption
from nmt.config.option import flag
from nmt.config.roles import CommandConfig


@dataclass
class DoctorConfig(OverwriteOption, ThreadsOption, CommandConfig):
    """nmt-doctor: show versions and devices, and check that the devices compute correctly."""

    command: ClassVar[str] = "doctor"
    full: bool = flag(
        False,
        help="Run all checks of each device, and avoid failed methods in later runs; about one minute on a CPU",
    )
    output: str | None = flag(None, help="JSON file for versions, devices and results; null: none")

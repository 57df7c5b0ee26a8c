"""The options of nmt-doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.config.common_options import OverwriteOption, ThreadsOption
from nmt.config.option import flag
from nmt.config.roles import CommandConfig


@dataclass
class DoctorConfig(OverwriteOption, ThreadsOption, CommandConfig):
    """nmt-doctor: what is installed, what the devices are, and whether they compute what they should."""

    command: ClassVar[str] = "doctor"
    full: bool = flag(False, help="check everything that training and translating use on each device; minutes")
    output: str | None = flag(None, help="also write versions, devices and results to this file, as JSON")

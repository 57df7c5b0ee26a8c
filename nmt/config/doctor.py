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
    full: bool = flag(
        False,
        help="all checks of each device instead of two, with a record of failed fast paths; about a minute for a CPU",
    )
    output: str | None = flag(None, help="JSON file for versions, devices and results; null: none")

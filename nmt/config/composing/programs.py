"""What users type to run a command."""

from __future__ import annotations


def command_of(config_class: type) -> str:
    """Return the command whose options a dataclass holds; for options of an example, the name of the dataclass."""
    command: str = getattr(config_class, "command", "")
    return command or config_class.__name__


def program_of(command: str) -> str:
    return f"nmt-{command.strip('_').replace('_', '-')}"

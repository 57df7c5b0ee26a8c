"""What can go wrong through no fault of the code: one class per exit status.

Raise an ``NMTError`` for anything that a user can cause and mend; the commands print it as one line, without a
traceback, and exit with its status. ``assert`` is for what only a programmer can break.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class NMTError(Exception):
    """A fault with a sentence for the user: what happened, with which value, and what to do."""

    exit_status = 1

    def __init__(self, message: str = "", exit_status: int | None = None) -> None:
        super().__init__(message)
        if exit_status is not None:
            self.exit_status = exit_status


class UsageError(NMTError):
    """The command line or the configuration is wrong."""

    exit_status = 2


class DataError(NMTError):
    """A file was read and its content is bad: text, corpus, vocabulary or checkpoint."""

    exit_status = 65


class MissingInputError(NMTError):
    """A file or folder that the command needs is not there, or cannot be opened."""

    exit_status = 66


class DeviceError(NMTError):
    """The device asked for is absent, out of memory, or unable to do what was asked."""

    exit_status = 69


class OutputError(NMTError):
    """The output cannot be created: it exists already, or another process is writing it."""

    exit_status = 73


class StorageError(NMTError):
    """Reading or writing failed half-way: disk full, quota, a folder removed underneath."""

    exit_status = 74


class Diverged(NMTError):
    """Training cannot go on: losses, gradients or parameters are no numbers any more."""


class Interrupted(NMTError):
    """The run was asked to stop, and stopped where the same command resumes it."""

    exit_status = 75


def numbered(messages: Sequence[str]) -> str:
    """Several complaints as one; a single one stays as it is."""
    if len(messages) == 1:
        return messages[0]
    return "; ".join(f"({number}) {message}" for number, message in enumerate(messages, 1))


def closest(value: str, choices: Iterable[str]) -> str | None:
    """The choice that ``value`` was probably meant to be, or None; capitals make no difference."""
    by_spelling = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(value.lower(), list(by_spelling), n=1, cutoff=0.6)
    return by_spelling[matches[0]] if matches else None


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` to append to a message, or an empty string."""
    match = closest(value, choices)
    return f" (did you mean '{match}'?)" if match else ""

"""Errors that a user can cause and correct: one class per exit status.

The commands print an ``NMTError`` as one line, without a traceback, and exit with its status. Use ``assert`` for errors of
the program.
"""

from __future__ import annotations

import contextlib
import difflib
import reprlib
from collections.abc import Iterable, Iterator, Sequence


class NMTError(Exception):
    """An error with a message for the user: what happened, with which value, and what to do."""

    exit_status = 1

    def __init__(self, message: str = "", exit_status: int | None = None) -> None:
        super().__init__(message)
        if exit_status is not None:
            self.exit_status = exit_status


class UsageError(NMTError):
    """The command line or the configuration is wrong."""

    exit_status = 2


class DataError(NMTError):
    """The content of a file is invalid: text, corpus, vocabulary or checkpoint."""

    exit_status = 65


class MissingInputError(NMTError):
    """A file or folder that the command needs is missing, or cannot be opened."""

    exit_status = 66


class DeviceError(NMTError):
    """The device is missing, out of memory, or does not support the operation."""

    exit_status = 69


class OutputError(NMTError):
    """The output cannot be created: it exists already, or another process is writing it."""

    exit_status = 73


class StorageError(NMTError):
    """Reading or writing failed halfway: a full disk, a quota, a removed folder."""

    exit_status = 74


class Diverged(NMTError):
    """Training stops: a loss, gradient or parameter is not finite, or the model does not learn although all are finite."""


class RankLost(NMTError):
    """Another rank of the run ended without a message, or did not answer. The same command resumes the run."""


class Interrupted(NMTError):
    """A signal or a time limit stopped the run; the same command resumes it."""

    exit_status = 75


class AlreadyReported(NMTError):
    """An error that another process reports. This process exits with its status and prints nothing."""


def numbered(messages: Sequence[str]) -> str:
    """Join several messages, with numbers; a single message stays as it is."""
    if len(messages) == 1:
        return messages[0]
    return "; ".join(f"({number}) {message}" for number, message in enumerate(messages, 1))


def quantity(count: float, unit: str, units: str | None = None) -> str:
    """Return a count with its unit: ``1 line``, ``2,000 lines``. ``units``: the plural; None: ``unit`` with an ``s``."""
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {unit}" if count == 1 else f"{number} {units or f'{unit}s'}"


def closest(value: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is most similar to ``value``, ignoring case; None if none is similar."""
    by_spelling = {choice.lower(): choice for choice in choices}
    matches = difflib.get_close_matches(value.lower(), list(by_spelling), n=1, cutoff=0.6)
    return by_spelling[matches[0]] if matches else None


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` to append to a message, or an empty string."""
    match = closest(value, choices)
    return f" (did you mean '{match}'?)" if match else ""


@contextlib.contextmanager
def needing(extra: str, what: str, advice: str = "") -> Iterator[None]:
    """Refuse ``what`` if a package that the block imports is not installed. ``extra``: of nmt, which installs it."""
    try:
        yield
    except ImportError:
        raise UsageError(
            f"{what} needs a package that is not installed: pip install 'nmt-toolkit[{extra}]'{advice}"
        ) from None


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 120


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message, shortened if it is long or nested."""
    return _SHORT.repr(value)


def unquoted(value: object) -> str:
    """Return the same as ``shown``, but text without quotes."""
    return shown(value)[1:-1] if isinstance(value, str) else shown(value)

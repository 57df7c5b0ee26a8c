"""The connection of a worker to the server: receive windows, send outcomes.

Between two search steps a worker polls the connection. The server may have sent a window that interrupts the current one, or
lines to abandon, or it may have ended.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from multiprocessing.connection import Connection

from nmt.serving.refusals import Refused
from nmt.serving.rendering import Rendered
from nmt.serving.translating import LoadedModels, Window
from nmt.serving.waiting import Outcome
from nmt.translation import Translation

logger = logging.getLogger("nmt.serving")

_MESSAGE_BYTES = 2**18  # of rendered lines, from which a message is sent
_LOOK = 0.005  # seconds between two polls of the connection; each poll costs a system call


@dataclass(frozen=True)
class Abandon:
    """Message to a worker: abandon these lines of a window, because their request has ended."""

    number: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class Outcomes:
    """Message of a worker: outcomes of lines of a window, by position. ``last``: the window is finished."""

    number: int
    outcomes: tuple[tuple[int, Outcome], ...]
    last: bool = False


class Abandoned(Exception):
    """Raised to end the work on lines that are all abandoned."""


class ServerGone(BaseException):
    """The server has ended. Not an ``Exception``: failures of lines do not catch it."""


@dataclass
class ActiveWindow:
    """A window that is being translated."""

    window: Window
    places: tuple[int, ...] = ()  # positions of the lines that are translated or rendered now
    abandoned: set[int] = field(default_factory=set)


class Desk:
    """Translate windows one by one, and windows that interrupt them."""

    def __init__(self, connection: Connection, loaded: LoadedModels) -> None:
        self._connection = connection
        self._loaded = loaded.with_step_hook(self.before_step)
        self._active: list[ActiveWindow] = []  # each interrupts the one before
        self._postponed = deque[Window]()
        self._next_look = 0.0

    def work(self) -> None:
        """Translate windows until the server has ended."""
        with contextlib.suppress(ServerGone):
            while True:
                while not self._postponed:
                    self._receive()
                self._translate(self._postponed.popleft())

    def before_step(self) -> None:
        """Handle messages and interrupting windows. Raises ``Abandoned`` or ``ServerGone`` to end the current work."""
        now = time.monotonic()
        if now >= self._next_look:
            while self._connection.poll():
                self._receive()
            self._next_look = time.monotonic() + _LOOK
            while self._postponed and self._loaded.translators[self._active[-1].window.model].interleaves:
                self._translate(self._postponed.popleft())
        active = self._active[-1]
        if active.abandoned.issuperset(active.places):
            raise Abandoned

    def _receive(self) -> None:
        try:
            message = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise ServerGone from None
        if isinstance(message, Window):
            self._postponed.append(message)
            return
        for active in self._active:
            if active.window.number == message.number:
                active.abandoned.update(message.places)

    def _translate(self, window: Window) -> None:
        active = ActiveWindow(window)
        self._active.append(active)
        try:
            source_tokens = self._loaded.source_tokens(window)
            refused = self._loaded.refused(window, source_tokens)
            places = [place for place in range(len(window.lines)) if place not in refused]
            slices = list(self._loaded.slices(window, places, source_tokens))
            if refused or not slices:
                self._send(window, refused.items(), last=not slices)
            for number, some in enumerate(slices, 1):
                places = [place for place in some if place not in active.abandoned]
                self._search(active, places, last=number == len(slices))
        finally:
            self._active.pop()

    def _search(self, active: ActiveWindow, places: list[int], *, last: bool) -> None:
        """Translate and render lines, and send their outcomes in messages of limited size.

        ``last``: the window ends with these lines. The last message says so, since each message costs the server a read.
        """
        message, size = list[tuple[int, Outcome]](), 0
        for place, translation in zip(places, self._translated(active, places)):
            outcome = self._rendered(active, place, translation)
            if outcome is None:
                continue
            message.append((place, outcome))
            size += outcome.size if isinstance(outcome, Rendered) else 0
            if size >= _MESSAGE_BYTES:
                self._send(active.window, message)
                message, size = [], 0
        if message or last:
            self._send(active.window, message, last=last)

    def _translated(self, active: ActiveWindow, places: list[int]) -> Sequence[Translation | Refused]:
        """Return nothing if the lines are abandoned."""
        active.places = tuple(places)
        try:
            return self._loaded.translate(active.window, places) if places else []
        except Abandoned:
            return []
        except Exception:
            return [_failed()] * len(places)

    def _rendered(self, active: ActiveWindow, place: int, translation: Translation | Refused) -> Outcome | None:
        """Return None if the line is abandoned."""
        active.places = (place,)
        try:
            return self._loaded.render(active.window.forms[place], translation, self.before_step)
        except Abandoned:
            return None
        except Exception:
            return _failed()

    def _send(self, window: Window, outcomes: Iterable[tuple[int, Outcome]], *, last: bool = False) -> None:
        message = pickle.dumps(Outcomes(window.number, tuple(outcomes), last))
        try:
            self._connection.send_bytes(message)
        except OSError:
            raise ServerGone from None


def _failed() -> Refused:
    """Log the current exception, and return the outcome of its lines. The worker continues."""
    logger.exception("translation failed")
    return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "translation failed; see the server's log")

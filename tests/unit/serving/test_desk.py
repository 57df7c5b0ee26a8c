"""A worker between two search steps: windows that interrupt, lines that nobody waits for, and the end of the server."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from multiprocessing import Pipe
from typing import Any, cast

import pytest

from nmt.config.choices import AlignmentKind
from nmt.serving import desk
from nmt.serving.desk import Abandon, Desk, Outcomes
from nmt.serving.refusals import Refused
from nmt.serving.rendering import Form, Rendered
from nmt.serving.translating import LoadedModels, Window
from nmt.translation import Line

STEPS = 5


def window(number: int, *texts: str) -> Window:
    lines, forms = [Line(text) for text in texts], [Form()] * len(texts)
    return Window(number, "de-en", {}, AlignmentKind.none, lines, range(len(texts)), forms)


class Models:
    """Stands for ``LoadedModels``: each line is a slice, and ``at`` is called before each step with text and step."""

    def __init__(self, at: Callable[[str, int], None], *, interleaves: bool = True) -> None:
        self.translators = {"de-en": self}
        self.interleaves = interleaves
        self.steps: list[str] = []
        self.steps_of_a_line = STEPS
        self._at = at

    def with_step_hook(self, before_step: Callable[[], None]) -> Models:
        self._before_step = before_step
        return self

    def source_tokens(self, window: Window) -> list[int]:
        return [len(line.text) for line in window.lines]

    def refused(self, window: Window, source_tokens: Sequence[int]) -> dict[int, Any]:
        return {}

    def slices(self, window: Window, places: Sequence[int], source_tokens: Sequence[int]) -> list[list[int]]:
        return [[place] for place in places]

    def translate(self, window: Window, places: Sequence[int]) -> list[Any]:
        (text,) = (window.lines[place].text for place in places)
        for step in range(self.steps_of_a_line):
            self._at(text, step)
            self._before_step()
            self.steps.append(text)
        if text == "defect":
            raise RuntimeError(text)
        return [text.upper()]

    def render(self, form: Form, text: str | Refused, pause: Callable[[], None]) -> Rendered | Refused:
        """With one pause, before which ``at`` is called with the text in capitals."""
        if isinstance(text, Refused):
            return text
        self._at(text, self.steps_of_a_line)
        pause()
        if text == "BAD RESULT":
            raise RuntimeError(text)
        return Rendered((text,))


@pytest.fixture(autouse=True)
def look_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_LOOK", 0.0)


class Server:
    """The server's end of the connection of a desk, which works in a thread."""

    def __init__(self, at: Callable[[Server, str, int], None] = lambda *_: None, *, interleaves: bool = True) -> None:
        """``at``: called by the worker before each step, with the text and the number of the step."""
        self._there, here = Pipe()
        self.messages = 0
        self.models = Models(lambda text, step: at(self, text, step), interleaves=interleaves)
        self._thread = threading.Thread(target=Desk(here, cast(LoadedModels, self.models)).work, daemon=True)
        self._thread.start()

    def send(self, *messages: object) -> None:
        for message in messages:
            self._there.send_bytes(pickle.dumps(message))

    def outcomes(self, windows: int) -> list[tuple[int, Any]]:
        """(window, outcome) of each line, until so many windows are finished; then the server goes."""
        found = list[tuple[int, Any]]()
        while windows:
            assert self._there.poll(20), "the worker sends nothing"
            some: Outcomes = pickle.loads(self._there.recv_bytes())
            found += [(some.number, getattr(outcome, "texts", [outcome])[0]) for _, outcome in some.outcomes]
            self.messages += 1
            windows -= some.last
        self.go()
        return found

    def go(self) -> None:
        self._there.close()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the worker goes on without a server"


def test_a_window_that_comes_between_two_steps_is_finished_first() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if (text, step) == ("long", 2):
            server.send(window(2, "short"))

    server = Server(at)
    server.send(window(1, "long"))
    assert server.outcomes(2) == [(2, "SHORT"), (1, "LONG")]
    assert server.models.steps == ["long"] * 2 + ["short"] * STEPS + ["long"] * (STEPS - 2)


def test_an_engine_that_holds_one_search_finishes_it_first() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if (text, step) == ("long", 2):
            server.send(window(2, "short"))

    server = Server(at, interleaves=False)
    server.send(window(1, "long"))
    assert server.outcomes(2) == [(1, "LONG"), (2, "SHORT")]


def test_lines_that_nobody_waits_for_are_given_up_between_two_steps_and_the_others_are_not() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if (text, step) == ("left", 2):
            server.send(Abandon(1, (0, 2)))

    server = Server(at)
    server.send(window(1, "left", "stays", "left too"))
    assert server.outcomes(1) == [(1, "STAYS")]
    assert server.models.steps == ["left"] * 2 + ["stays"] * STEPS


def test_a_window_may_be_given_up_while_another_one_interrupts_it() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if (text, step) == ("long", 2):
            server.send(window(2, "short"))
        if (text, step) == ("short", 2):
            server.send(Abandon(1, (0,)))

    server = Server(at)
    server.send(window(1, "long"))
    assert server.outcomes(2) == [(2, "SHORT")]
    assert server.models.steps == ["long"] * 2 + ["short"] * STEPS


def test_a_worker_ends_between_two_steps_when_its_server_has_gone() -> None:
    begun = threading.Event()

    def at(server: Server, text: str, step: int) -> None:
        begun.set()
        time.sleep(0.01)

    server = Server(at)
    server.models.steps_of_a_line = 10**6
    server.send(window(1, "endless"))
    assert begun.wait(20)
    server.go()
    assert len(server.models.steps) < 10**5


def test_a_window_may_interrupt_the_rendering_of_another_one() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if text == "LONG":
            server.send(window(2, "short"))

    server = Server(at)
    server.send(window(1, "long"))
    assert server.outcomes(2) == [(2, "SHORT"), (1, "LONG")]


def test_a_line_that_nobody_waits_for_is_given_up_while_it_is_rendered() -> None:
    def at(server: Server, text: str, step: int) -> None:
        if text == "LEFT":
            server.send(Abandon(1, (0,)))

    server = Server(at)
    server.send(window(1, "left", "stays"))
    assert server.outcomes(1) == [(1, "STAYS")]


def test_a_large_outcome_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_MESSAGE_BYTES", 4)
    monkeypatch.setattr(Models, "slices", lambda self, window, places, source_tokens: [list(places)])
    monkeypatch.setattr(
        Models, "translate", lambda self, window, places: [window.lines[place].text for place in places]
    )
    server = Server()
    server.send(window(1, "large", "a", "b"))
    assert server.outcomes(1) == [(1, "large"), (1, "a"), (1, "b")]
    assert server.messages == 2, "the end of the window needs no message of its own"


@pytest.mark.parametrize("bad", ["defect", "bad result"])
def test_a_defect_is_an_outcome_and_the_worker_continues(bad: str) -> None:
    server = Server()
    server.send(window(1, bad, "fine"))
    (_, failed), (_, fine) = server.outcomes(1)
    assert isinstance(failed, Refused) and failed.status == HTTPStatus.INTERNAL_SERVER_ERROR
    assert fine == "FINE"

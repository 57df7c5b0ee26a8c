"""Windows of lines, and what becomes of them: with processes that a test plays itself."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import pytest

from nmt.config.serving import ServeConfig
from nmt.errors import DeviceError
from nmt.serving.asking import Asked
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import Model
from nmt.serving.refusals import Refused
from nmt.serving.waiting import Job, Waiting
from nmt.serving.workers import Window, Worker
from nmt.translation import Line, TranslatedText, Translation

MODEL = Model("de-en", "de", "en", "beam")


def asked(*texts: str, **options: Any) -> Asked:
    return Asked(MODEL, tuple(map(Line, texts)), options)


def translated(window: Window) -> list[Translation]:
    """Each line in capitals."""
    return [
        Translation(number, line.text, [], [TranslatedText(line.text.upper(), [], 0.0, [], None, True)])
        for number, line in zip(window.numbers, window.lines)
    ]


class Played:
    """A process, both ends of which are here."""

    def __init__(self, ready: object = (MODEL,)) -> None:
        self.connection, self.there = Pipe()
        self.there.send_bytes(pickle.dumps(ready))

    models = Worker.models
    outcomes = Worker.outcomes
    give = Worker.give

    def end(self) -> str:
        return "SIGKILL"

    def close(self) -> None:
        self.connection.close()

    def window(self) -> Window:
        found: Window = pickle.loads(self.there.recv_bytes())
        return found

    def answer(self, outcomes: object) -> None:
        self.there.send_bytes(pickle.dumps(outcomes))


def job(loop: asyncio.AbstractEventLoop, *texts: str, **options: Any) -> Job:
    return Job(asked(*texts, **options), loop.create_future())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def texts_of(waiting: Waiting, most: int, processes: int = 1) -> list[str]:
    return [item.job.asked.lines[item.index].text for item in waiting.take(most, processes)]


def test_requests_take_turns(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    for one in (job(loop, *"abcdef"), job(loop, "x"), job(loop, "y", "z")):
        waiting.add(one)
    assert texts_of(waiting, 5) == ["a", "x", "y", "b", "z"]
    assert texts_of(waiting, 9) == ["c", "d", "e", "f"]
    assert texts_of(waiting, 9) == [] and waiting.lines == 0


def test_a_process_takes_its_share_of_the_lines(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    waiting.add(job(loop, *"abcde"))
    assert texts_of(waiting, 4, processes=2) == ["a", "b", "c"]
    assert texts_of(waiting, 4, processes=1) == ["d", "e"]


def test_what_is_translated_in_another_way_leaves_in_another_window(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    for one in (job(loop, *"abc"), job(loop, "x", beam=2), job(loop, "d")):
        waiting.add(one)
    assert texts_of(waiting, 2) == ["a", "d"]
    assert texts_of(waiting, 2) == ["x"]
    assert texts_of(waiting, 9) == ["b", "c"]


def test_what_is_dropped_does_not_leave(loop: asyncio.AbstractEventLoop) -> None:
    waiting, gone = Waiting(), job(loop, *"abc")
    for one in (gone, job(loop, "x")):
        waiting.add(one)
    assert texts_of(waiting, 1) == ["a"]
    assert waiting.drop(gone) == 2
    assert (texts_of(waiting, 9), waiting.lines) == (["x"], 0)


def test_lines_that_are_tried_again_leave_one_by_one_and_first(loop: asyncio.AbstractEventLoop) -> None:
    waiting, first = Waiting(), job(loop, *"ab")
    waiting.add(first)
    items = waiting.take(9, 1)
    waiting.add(job(loop, "x"))
    waiting.add_again(items)
    assert waiting.lines == 3
    assert [texts_of(waiting, 9) for _ in range(3)] == [["a"], ["b"], ["x"]]
    waiting.add_again(items)
    assert waiting.drop(first) == 2 and waiting.lines == 0


def test_a_line_that_cannot_be_translated_settles_its_request(loop: asyncio.AbstractEventLoop) -> None:
    one = job(loop, *"ab")
    refused = Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "no")
    one.settle(1, refused)
    one.settle(0, translated(Window("de-en", {}, one.asked.alignment, [Line("a")], [0]))[0])
    assert one.done.exception() is refused


def test_a_refusal_can_be_sent_from_one_process_to_another() -> None:
    one = pickle.loads(pickle.dumps(Refused(HTTPStatus.REQUEST_TIMEOUT, "slow", closes=True)))
    assert (one.status, one.sentence, one.headers) == (408, "slow", {"Connection": "close"})


Scene = Callable[[Dispatcher, list[Played]], Awaitable[None]]


def play(scene: Scene, workers: int = 1, later: Callable[[], Played] = Played, **options: Any) -> Metrics:
    """A dispatcher with processes that the scene plays; those that are started later are added to the list."""
    played = [Played() for _ in range(workers)]
    for one in played:
        cast(Worker, one).models()
    metrics = Metrics()

    def another() -> Worker:
        played.append(later())
        return cast(Worker, played[-1])

    async def run() -> None:
        config = ServeConfig(**{"gather_ms": 0.0, "timeout": 20.0, **options})
        dispatcher = Dispatcher(config, cast("list[Worker]", list(played)), another, metrics)
        try:
            await asyncio.wait_for(scene(dispatcher, played), 20)
        finally:
            dispatcher.close()

    asyncio.run(run())
    return metrics


def begun(dispatcher: Dispatcher, *texts: str) -> tuple[asyncio.Task[list[Translation]], asyncio.Future[object]]:
    gone: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    return asyncio.ensure_future(dispatcher.translate(asked(*texts), gone)), gone


async def readable(connection: Connection) -> None:
    while not connection.poll():
        await asyncio.sleep(0.001)


def test_lines_that_come_together_are_translated_together() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        tasks = [begun(dispatcher, *texts)[0] for texts in ("ab", "c", "d")]
        await readable(played[0].there)
        window = played[0].window()
        assert sorted(line.text for line in window.lines) == ["a", "b", "c", "d"]
        played[0].answer(translated(window))
        found = [[one.hypotheses[0].text for one in await task] for task in tasks]
        assert found == [["A", "B"], ["C"], ["D"]]

    assert play(scene, gather_ms=1.0).lines == {"de-en": 4}


def test_a_full_window_leaves_at_once() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task, gone = begun(dispatcher, *"abc")
        await asyncio.sleep(0)
        assert [line.text for line in played[0].window().lines] == ["a", "b"]
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene, gather_ms=10_000.0, buffer_size=2)


def test_a_line_over_which_two_processes_end_is_given_up_and_the_others_are_not() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        bad, good = begun(dispatcher, "bad")[0], begun(dispatcher, "good")[0]
        await readable(played[0].there)
        assert len(played[0].window().lines) == 2
        played[0].there.close()
        for number in (1, 2):
            while len(played) <= number:
                await asyncio.sleep(0.001)
            await readable(played[number].there)
            window = played[number].window()
            assert len(window.lines) == 1
            if window.lines[0].text == "bad":
                played[number].there.close()
            else:
                played[number].answer(translated(window))
        with pytest.raises(Refused) as refused:
            await bad
        assert (refused.value.status, "ended twice" in refused.value.sentence) == (500, True)
        assert (await good)[0].hypotheses[0].text == "GOOD"

    assert play(scene).ended_workers == 2


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.dispatching._AGAIN", 0.01)
    answers = iter([DeviceError("no memory"), (MODEL,)])

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task = begun(dispatcher, "a")[0]
        await readable(played[0].there)
        played[0].there.close()
        while len(played) < 3:
            await asyncio.sleep(0.001)
        await readable(played[2].there)
        played[2].answer(translated(played[2].window()))
        assert (await task)[0].hypotheses[0].text == "A"

    play(scene, later=lambda: Played(next(answers)))


def test_what_a_process_sends_and_nobody_can_read_is_its_end() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task = begun(dispatcher, "a")[0]
        await readable(played[0].there)
        played[0].there.send_bytes(b"nonsense")
        while len(played) < 2:
            await asyncio.sleep(0.001)
        await readable(played[1].there)
        played[1].answer(translated(played[1].window()))
        assert (await task)[0].hypotheses[0].text == "A"

    assert play(scene).ended_workers == 1

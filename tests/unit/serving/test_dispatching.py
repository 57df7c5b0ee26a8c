"""Windows of lines, and what becomes of them: with processes that a test plays itself."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, cast

import pytest

from nmt.errors import DeviceError
from nmt.serving.config import ServeConfig
from nmt.serving.desk import Abandon, Outcomes
from nmt.serving.dispatching import Dispatcher
from nmt.serving.metrics import Metrics
from nmt.serving.models import ServedModel
from nmt.serving.refusals import Refused
from nmt.serving.rendering import Rendered
from nmt.serving.request_forms import TranslationRequest
from nmt.serving.translating import Window
from nmt.serving.waiting import Item, Outcome, Waiting
from nmt.serving.workers import models_of
from nmt.translation import Line
from nmt.workers import WorkerProcess

MODEL = ServedModel("de-en", "de", "en", "beam")


def asked(*texts: str, **options: Any) -> TranslationRequest:
    return TranslationRequest(MODEL, tuple(map(Line, texts)), options)


def translated(window: Window) -> list[Rendered]:
    """Each line in capitals."""
    return [Rendered((line.text.upper(),)) for line in window.lines]


class Played:
    """A process, both ends of which are here."""

    def __init__(self, ready: object = (MODEL,)) -> None:
        self.pipe, self.there = Pipe()
        self.there.send_bytes(pickle.dumps(ready))

    send = WorkerProcess.send
    receive = WorkerProcess.receive

    def ending(self) -> str:
        return "SIGKILL"

    def close(self) -> None:
        self.pipe.close()

    def window(self) -> Window:
        found = self.message()
        assert isinstance(found, Window)
        return found

    def message(self) -> Window | Abandon:
        found: Window | Abandon = pickle.loads(self.there.recv_bytes())
        return found

    def answer(self, window: Window, outcomes: Sequence[Outcome]) -> None:
        found = Outcomes(window.number, tuple(enumerate(outcomes)), last=True)
        self.there.send_bytes(pickle.dumps(found))


def test_a_refusal_can_be_sent_from_one_process_to_another() -> None:
    one = pickle.loads(pickle.dumps(Refused(HTTPStatus.REQUEST_TIMEOUT, "slow", closes=True)))
    assert (one.status, one.sentence, one.headers) == (408, "slow", {"Connection": "close"})


Scene = Callable[[Dispatcher, list[Played]], Awaitable[None]]


def play(scene: Scene, workers: int = 1, later: Callable[[], Played] = Played, **options: Any) -> Metrics:
    """A dispatcher with processes that the scene plays; those that are started later are added to the list."""
    played = [Played() for _ in range(workers)]
    for one in played:
        models_of(cast(WorkerProcess, one))
    metrics = Metrics()

    def another() -> WorkerProcess:
        played.append(later())
        return cast(WorkerProcess, played[-1])

    async def run() -> None:
        config = ServeConfig(**{"gather_ms": 0.0, "timeout": 20.0, **options})
        dispatcher = Dispatcher(config, cast("list[WorkerProcess]", list(played)), another, metrics)
        try:
            await asyncio.wait_for(scene(dispatcher, played), 20)
        finally:
            dispatcher.close()

    asyncio.run(run())
    return metrics


def begun(dispatcher: Dispatcher, *texts: str) -> tuple[asyncio.Task[list[Rendered]], asyncio.Future[object]]:
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
        played[0].answer(window, translated(window))
        found = [[one.texts[0] for one in await task] for task in tasks]
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
                played[number].answer(window, translated(window))
        with pytest.raises(Refused) as refused:
            await bad
        assert (refused.value.status, "ended twice" in refused.value.sentence) == (500, True)
        assert (await good)[0].texts[0] == "GOOD"

    assert play(scene).ended_workers == 2


def test_a_cheap_request_interrupts_a_window_that_runs_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.dispatching._UNDISTURBED", 0.0)

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        long = begun(dispatcher, *["a" * 9000] * 2)[0]
        await readable(played[0].there)
        interrupted = played[0].window()
        cheap = begun(dispatcher, "b")[0]
        await readable(played[0].there)
        window = played[0].window()
        assert ([line.text for line in window.lines], dispatcher.busy_workers) == (["b"], 1)
        played[0].answer(window, translated(window))
        assert (await cheap)[0].texts[0] == "B"
        assert dispatcher.busy_workers == 1 and dispatcher.oldest_request_seconds > 0
        played[0].answer(interrupted, translated(interrupted))
        assert len(await long) == 2

    assert play(scene).interruptions == 1


def test_an_equally_long_request_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.dispatching._UNDISTURBED", 0.0)
    attempts = list[list[Item]]()

    class ObservedWaiting(Waiting):
        def take(self, most: int, processes: int, budget: float, *, strictly: bool = False) -> list[Item]:
            items = super().take(most, processes, budget, strictly=strictly)
            if strictly:  # for an interruption
                attempts.append(items)
            return items

    monkeypatch.setattr("nmt.serving.dispatching.Waiting", ObservedWaiting)

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        tasks = [begun(dispatcher, letter * 9000)[0] for letter in "ab"]
        for letter, task in zip("ab", tasks):
            await readable(played[0].there)
            window = played[0].window()
            assert [line.text[0] for line in window.lines] == [letter]
            while not attempts:
                await asyncio.sleep(0)
            assert attempts == [[]] and not played[0].there.poll()
            played[0].answer(window, translated(window))
            await task

    assert play(scene, buffer_size=1).interruptions == 0


def test_a_worker_is_told_which_lines_nobody_waits_for() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        (leaving, gone), (staying, _) = begun(dispatcher, "a", "b"), begun(dispatcher, "c")
        await readable(played[0].there)
        window = played[0].window()
        gone.set_result(None)
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await readable(played[0].there)
        left = [place for place, line in enumerate(window.lines) if line.text in "ab"]
        assert played[0].message() == Abandon(window.number, tuple(left))
        kept = [(place, one) for place, one in enumerate(translated(window)) if place not in left]
        played[0].there.send_bytes(pickle.dumps(Outcomes(window.number, tuple(kept), last=True)))
        assert [one.texts[0] for one in await staying] == ["C"]

    assert play(scene).abandoned_lines == 2


def test_a_worker_is_told_to_abandon_the_lines_of_a_request_that_was_not_translated_in_time() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        late = begun(dispatcher, "a", "b")[0]
        await readable(played[0].there)
        window = played[0].window()
        with pytest.raises(Refused, match=r"not translated within 0\.05 seconds") as refused:
            await late
        assert (refused.value.status, dispatcher.busy_workers, dispatcher.oldest_request_seconds) == (504, 1, 0)
        await readable(played[0].there)
        assert played[0].message() == Abandon(window.number, (0, 1))
        played[0].there.send_bytes(pickle.dumps(Outcomes(window.number, (), last=True)))
        while dispatcher.busy_workers:
            await asyncio.sleep(0.001)

    metrics = play(scene, timeout=0.05)
    assert (metrics.abandoned_lines, metrics.dropped_lines) == (2, 0)


def test_lines_are_answered_before_their_window_is_finished() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        tasks = [begun(dispatcher, text)[0] for text in "ab"]
        await readable(played[0].there)
        window = played[0].window()
        first, second = enumerate(translated(window))
        played[0].there.send_bytes(pickle.dumps(Outcomes(window.number, (first,))))
        await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
        assert [task.done() for task in tasks] == [True, False] and dispatcher.busy_workers == 1
        played[0].there.send_bytes(pickle.dumps(Outcomes(window.number, (second,), last=True)))
        await tasks[1]

    play(scene, gather_ms=1.0)


def test_idle_workers_that_have_died_are_replaced_before_a_line_comes() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        for one in list(played):
            one.there.close()
        while len(played) < 4 or dispatcher.workers < 2:
            await asyncio.sleep(0.001)
        task = begun(dispatcher, "a")[0]
        await readable(played[2].there)
        window = played[2].window()
        played[2].answer(window, translated(window))
        assert (await task)[0].texts[0] == "A"

    assert play(scene, workers=2).ended_workers == 2


def test_a_line_is_not_blamed_for_workers_that_had_died_before() -> None:
    """Both are dead, and nobody has noticed yet."""

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        for one in list(played):
            one.there.close()
        task = begun(dispatcher, "a")[0]
        while len(played) < 3:
            await asyncio.sleep(0.001)
        await readable(played[2].there)
        window = played[2].window()
        played[2].answer(window, translated(window))
        assert (await task)[0].texts[0] == "A"

    play(scene, workers=2)


def test_a_full_queue_still_admits_its_share_of_a_small_request() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        large = [begun(dispatcher, *"abcd") for _ in range(2)]
        await asyncio.sleep(0)
        small = begun(dispatcher, *"xy")
        await asyncio.sleep(0)
        assert not small[0].done()
        with pytest.raises(Refused, match=r"the queue is full \(\d+ lines\)") as refused:
            await begun(dispatcher, *"abcd")[0]
        assert refused.value.status == 503
        for task, gone in (*large, small):
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    play(scene, gather_ms=10_000.0, max_queue=8, max_lines=8, buffer_size=100)


def test_a_queue_that_one_line_fills_is_told_in_the_singular() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task, gone = begun(dispatcher, "a")
        await asyncio.sleep(0)
        with pytest.raises(Refused, match=r"the queue is full \(1 line\)"):
            await begun(dispatcher, "b")[0]
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene, gather_ms=10_000.0, max_queue=1, max_lines=1, buffer_size=100)


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.dispatching._RETRY_SECONDS", 0.01)
    answers = iter([DeviceError("no memory"), (MODEL,)])

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task = begun(dispatcher, "a")[0]
        await readable(played[0].there)
        played[0].there.close()
        while len(played) < 3:
            await asyncio.sleep(0.001)
        await readable(played[2].there)
        window = played[2].window()
        played[2].answer(window, translated(window))
        assert (await task)[0].texts[0] == "A"

    play(scene, later=lambda: Played(next(answers)))


def test_each_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is refused by the system, and one ends at its start."""
    monkeypatch.setattr("nmt.serving.dispatching._RETRY_SECONDS", 0.01)
    answers = iter([OSError("no process is free"), DeviceError("no memory"), (MODEL,), (MODEL,)])

    def later() -> Played:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return Played(answer)

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        for one in list(played):
            one.there.close()
        while len(played) < 5 or dispatcher.workers < 2:
            await asyncio.sleep(0.001)

    assert play(scene, workers=2, later=later).ended_workers == 2


def test_no_process_is_started_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.dispatching._RETRY_SECONDS", 0.0)
    tries = list[int]()

    def later() -> Played:
        tries.append(1)
        raise OSError("no process is free")

    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        for one in list(played):
            one.there.close()
        while dispatcher.workers or len(tries) < 2:
            await asyncio.sleep(0)
        dispatcher.close()
        before, overdue = len(tries), asyncio.Event()
        asyncio.get_running_loop().call_later(0.0, overdue.set)  # after every start that is still scheduled
        await overdue.wait()
        assert len(tries) == before

    play(scene, workers=2, later=later)


def test_what_a_process_sends_and_nobody_can_read_is_its_end() -> None:
    async def scene(dispatcher: Dispatcher, played: list[Played]) -> None:
        task = begun(dispatcher, "a")[0]
        await readable(played[0].there)
        played[0].there.send_bytes(b"nonsense")
        while len(played) < 2:
            await asyncio.sleep(0.001)
        await readable(played[1].there)
        window = played[1].window()
        played[1].answer(window, translated(window))
        assert (await task)[0].texts[0] == "A"

    assert play(scene).ended_workers == 1

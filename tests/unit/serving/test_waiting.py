"""The order in which waiting lines leave, and their costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from nmt.serving.costs import cost_of
from nmt.serving.models import ServedModel
from nmt.serving.refusals import Refused
from nmt.serving.rendering import Rendered
from nmt.serving.request_forms import TranslationRequest
from nmt.serving.waiting import QueuedRequest, Waiting
from nmt.translation import Line

MODEL = ServedModel("de-en", "de", "en", "beam")


def asked(*texts: str, **options: Any) -> TranslationRequest:
    return TranslationRequest(MODEL, tuple(map(Line, texts)), options)


def job(loop: asyncio.AbstractEventLoop, *texts: str, **options: Any) -> QueuedRequest:
    return QueuedRequest(asked(*texts, **options), loop.create_future(), max_bytes=100)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def texts_of(waiting: Waiting, most: int, processes: int = 1, budget: float = 1e9, **more: bool) -> list[str]:
    return [item.job.request.lines[item.index].text for item in waiting.take(most, processes, budget, **more)]


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
    items = waiting.take(9, 1, 1e9)
    waiting.add(job(loop, "x"))
    waiting.retry(items)
    assert waiting.lines == 3
    assert [texts_of(waiting, 9) for _ in range(3)] == [["a"], ["b"], ["x"]]
    waiting.retry(items)
    assert waiting.drop(first) == 2 and waiting.lines == 0


def test_a_line_that_cannot_be_translated_settles_its_request(loop: asyncio.AbstractEventLoop) -> None:
    one = job(loop, *"ab")
    refused = Refused(HTTPStatus.UNPROCESSABLE_ENTITY, "no")
    one.settle(1, refused)
    one.settle(0, Rendered(("a",)))
    assert one.translations.exception() is refused


def test_an_answer_that_grows_too_large_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    one, other = job(loop, "a", "b"), job(loop, "a", "b")
    for index in range(2):
        one.settle(index, Rendered(json=b"x" * 50))
        other.settle(index, Rendered(("x" * 25, "y" * 26)))
    assert len(one.translations.result()) == 2, "100 bytes are allowed"
    refused = other.translations.exception()
    assert isinstance(refused, Refused) and (refused.status, "more than 100 bytes" in refused.sentence) == (413, True)


def test_lines_of_a_long_request_leave_after_those_of_a_short_one(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    for one in (job(loop, "a" * 9000, "b" * 9000), job(loop, "c" * 9000), job(loop, "x")):
        waiting.add(one)
    assert [text[0] for text in texts_of(waiting, 9)] == ["x", "a", "c", "b"]


def test_a_long_line_waits_for_no_more_work_than_it_costs(loop: asyncio.AbstractEventLoop) -> None:
    """Short requests that come again and again do not keep it waiting for ever."""
    waiting, taken = Waiting(), list[str]()
    waiting.add(job(loop, "long " * 100))
    while len(taken) < 50 and "long" not in taken:
        waiting.add(job(loop, "x"))
        taken += [text[:4] for text in texts_of(waiting, 1)]
    assert 5 < len(taken) < 20


def test_a_window_costs_at_most_its_budget_except_for_its_first_line(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    waiting.add(job(loop, *["a" * 400] * 5))
    assert [len(texts_of(waiting, 9, budget=budget)) for budget in (250, 1, 99)] == [2, 1, 1]


def test_an_interruption_takes_whole_requests_within_its_budget_alone(loop: asyncio.AbstractEventLoop) -> None:
    waiting = Waiting()
    for one in (job(loop, *["short"] * 100), job(loop, "a" * 9000), job(loop, "small")):
        waiting.add(one)
    assert texts_of(waiting, 9, budget=30, strictly=True) == ["small"]
    assert texts_of(waiting, 9, budget=30, strictly=True) == []
    assert waiting.lines == 101


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (Line("a", min_length=1000), {}),
        (Line("a", prefix="b" * 4000), {}),
        (Line("a", include=("b",) * 60), {}),
        (Line("a"), {"beam": 20}),
        (Line("a"), {"nbest": 20}),
    ],
)
def test_what_makes_a_search_slow_raises_the_cost_of_a_line(line: Line, options: dict[str, Any]) -> None:
    assert cost_of(line, options) > 3 * cost_of(Line("a"), {"beam": 5})

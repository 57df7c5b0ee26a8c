"""Large bodies are parsed in turns, which leave the loop to others."""

from __future__ import annotations

import asyncio
import time

import pytest

from nmt.serving.body import ClientGone, Turns

LARGE, SMALL = b"x" * 2**20, b"x"
SECONDS = 0.02  # of a parse


def slowly(body: bytes) -> int:
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        pass
    return len(body)


def test_small_bodies_are_parsed_between_large_ones_in_half_of_the_time() -> None:
    order = list[str]()

    async def parse(turns: Turns, name: str, body: bytes) -> None:
        await turns.parse(body, slowly if body is LARGE else len, asyncio.get_running_loop().create_future())
        order.append(name)

    async def scene() -> float:
        turns, begin = Turns(), time.perf_counter()
        large = [asyncio.ensure_future(parse(turns, f"large {number}", LARGE)) for number in range(3)]
        await asyncio.sleep(0)
        await parse(turns, "small", SMALL)
        await asyncio.gather(*large)
        return time.perf_counter() - begin

    seconds = asyncio.run(scene())
    assert order == ["large 0", "small", "large 1", "large 2"]
    assert seconds >= 5 * SECONDS, "three are parsed, and two times the others have the loop"


def test_a_failed_parse_and_a_client_that_left_give_their_turn_to_the_next() -> None:
    def bad(body: bytes) -> int:
        raise ValueError

    async def scene() -> None:
        turns, stays, gone = Turns(), *(asyncio.get_running_loop().create_future() for _ in range(2))
        gone.set_result(None)
        with pytest.raises(ValueError):
            await turns.parse(LARGE, bad, stays)
        with pytest.raises(ClientGone):
            await turns.parse(LARGE, bad, gone)
        assert await turns.parse(LARGE, len, stays) == len(LARGE)

    asyncio.run(asyncio.wait_for(scene(), 20))

"""Read and parse the body of a request, within limits of size and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Message

from nmt.errors import quantity
from nmt.serving.config import ServeConfig
from nmt.serving.refusals import Refused, malformed, too_large

T = TypeVar("T")
_WORTH_READING = 2**26  # bytes that a client may still send, so that it then reads why they are refused
_SMALL = 2**14  # bytes of a body that is parsed in one or two milliseconds


class ClientGone(Exception):
    """The client has disconnected."""


async def read_body(request: Request, config: ServeConfig) -> bytes:
    """Return the whole body. Raises ``Refused`` or ``ClientGone``."""
    limit = config.max_body_bytes
    declared = request.headers.get("content-length")
    if declared is not None and not declared.isdecimal():
        raise malformed(f"Content-Length {declared!r} is not a number of bytes")
    if declared is not None and int(declared) > limit:
        _refuse(int(declared), limit)
    try:
        return await asyncio.wait_for(_parts(request, limit), config.read_timeout)
    except asyncio.TimeoutError:
        sentence = f"the request was not received within {quantity(config.read_timeout, 'second')}"
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, sentence, closes=True) from None


async def _parts(request: Request, limit: int) -> bytes:
    parts, size = list[bytes](), 0
    while True:
        message: Message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > limit:
            _refuse(size, limit)
        if not message.get("more_body", False):
            return b"".join(parts)


def _refuse(size: int, limit: int) -> None:
    sentence = f"the request has more than {limit:,} bytes; send less text at a time"
    raise too_large(sentence, closes=size > _WORTH_READING)


class Turns:
    """Parse large bodies one at a time, in the order of arrival, for at most half of the loop's time.

    A body of 1 MB takes between 5 and 300 milliseconds. Without turns, clients that send such bodies without pause would
    block the loop for all others.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def parse(self, body: bytes, read: Callable[[bytes], T], disconnection: asyncio.Future[object]) -> T:
        """Return the body, parsed by ``read``. Raises ``ClientGone`` if the client left before its turn."""
        if len(body) <= _SMALL:
            return read(body)
        await self._turn.acquire()
        begin = time.perf_counter()
        try:
            if disconnection.done():
                raise ClientGone
            return read(body)
        finally:
            asyncio.get_running_loop().call_later(time.perf_counter() - begin, self._turn.release)

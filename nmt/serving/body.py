"""What a client sends, within limits: nothing that is too large is kept, and nobody is waited for without end."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import Message

from nmt.config.serving import ServeConfig
from nmt.serving.refusals import Refused, malformed, too_large

_WORTH_READING = 2**26  # bytes that a client may go on sending, so that it comes to read why they are refused


class ClientGone(Exception):
    """Nobody is there to be answered."""


async def read_body(request: Request, config: ServeConfig) -> bytes:
    """The whole body. Raises ``Refused`` or ``ClientGone``."""
    limit = config.max_body_bytes
    said = request.headers.get("content-length")
    if said is not None and not said.isdecimal():
        raise malformed(f"Content-Length {said!r} is no number of bytes")
    if said is not None and int(said) > limit:
        _refuse(int(said), limit)
    try:
        return await asyncio.wait_for(_parts(request, limit), config.read_timeout)
    except asyncio.TimeoutError:
        sentence = f"the request did not come within {config.read_timeout:g} seconds"
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
    sentence = f"a request may have {limit:,} bytes; send less at a time"
    raise too_large(sentence, closes=size > _WORTH_READING)

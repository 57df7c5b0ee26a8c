"""What a client is told when it gets no translation."""

from __future__ import annotations

from http import HTTPStatus

RETRY_SECONDS = 1


class Refused(Exception):
    """A request that is answered with a status and a sentence. ``closes``: nothing more is read from the client."""

    def __init__(self, status: HTTPStatus, sentence: str, closes: bool = False) -> None:
        super().__init__(status, sentence, closes)  # with these it can be sent from one process to another
        self.status = status
        self.sentence = sentence
        self.closes = closes

    @property
    def headers(self) -> dict[str, str]:
        found = {"Retry-After": str(RETRY_SECONDS)} if self.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        return found | ({"Connection": "close"} if self.closes else {})


def wrong(sentence: str) -> Refused:
    """The request was understood and asks for what cannot be."""
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)


def malformed(sentence: str) -> Refused:
    """The request was not understood."""
    return Refused(HTTPStatus.BAD_REQUEST, sentence)


def too_large(sentence: str, closes: bool = False) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, closes)


def busy(sentence: str) -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, sentence)

"""Errors that are sent to clients."""

from __future__ import annotations

from http import HTTPStatus

RETRY_SECONDS = 1


class Refused(Exception):
    """A request is answered with an error status and a sentence. ``closes``: the connection is closed."""

    def __init__(self, status: HTTPStatus, sentence: str, closes: bool = False) -> None:
        super().__init__(status, sentence, closes)  # the arguments with which pickle makes it again
        self.status = status
        self.sentence = sentence
        self.closes = closes

    @property
    def headers(self) -> dict[str, str]:
        of_status = {
            HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": str(RETRY_SECONDS)},
            HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
        }
        headers = of_status.get(self.status, {})
        return headers | ({"Connection": "close"} if self.closes else {})


def wrong(sentence: str) -> Refused:
    """The request is well-formed but cannot be fulfilled."""
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, sentence)


def malformed(sentence: str) -> Refused:
    """The request is malformed."""
    return Refused(HTTPStatus.BAD_REQUEST, sentence)


def too_large(sentence: str, closes: bool = False) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, sentence, closes)


def busy(sentence: str) -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, sentence)

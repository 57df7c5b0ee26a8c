"""What a server says of the requests that it is answering."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nmt.serving.app import Service
from nmt.serving.config import ServeConfig


@pytest.mark.parametrize(
    ("active", "words"),
    [(0, "0 requests"), (1, "1 request"), (2, "2 requests"), (1000, "1,000 requests")],
    ids=str,
)
def test_active_requests_are_told_in_words(active: int, words: str) -> None:
    parts = [cast(Any, None)] * 3
    assert Service(ServeConfig(), *parts, active=active).load == f"{words} in progress"

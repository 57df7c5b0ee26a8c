"""The corpora of both tasks, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.learning.learn import TASKS, make_corpus


@pytest.fixture(scope="session", params=TASKS)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(request.param, tmp_path_factory.mktemp(request.param))

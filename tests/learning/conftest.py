"""The corpora of both tasks, each made once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.learning.learn import make_corpus


@pytest.fixture(scope="session")
def corpus_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The folder of a task's corpus with so many training pairs."""

    @functools.cache
    def made(task: str, pairs: int) -> Path:
        return make_corpus(task, tmp_path_factory.mktemp(task), pairs)

    return made

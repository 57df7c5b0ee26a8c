"""Two small models of opposite directions, and a server that has both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="nmt-serve needs Starlette: pip install 'nmt-toolkit[serve]'")
pytest.importorskip("uvicorn", reason="nmt-serve needs uvicorn: pip install 'nmt-toolkit[serve]'")

from nmt import Translator
from tests.serving.servers import Server, running
from tests.tiny_models import write_tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("served") / "de-en", model="transformer", updates=600)


@pytest.fixture(scope="session")
def back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("served") / "en-de", updates=150, reverse=True)


@pytest.fixture(scope="session")
def server(model: Path, back: Path) -> Iterator[Server]:
    """Tests share it; none of them stops it or slows it down."""
    with running("--path", f"{model},{back}", "--workers", "2", "--max-body-bytes", "20000") as started:
        yield started


@pytest.fixture(scope="session")
def expected(model: Path) -> Callable[[list[str]], list[str]]:
    """What nmt-generate makes of lines."""
    translator = Translator.load(model, "cpu")
    return translator.translate

"""Tiny trained models that tests of attention and of word alignments share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_models import SIZES_WITH_ATTENTION, write_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module", params=["transformer", "conv_s2s", "lstm"])
def model(request: pytest.FixtureRequest, folder: Path) -> Path:
    sizes: dict[str, Any] = SIZES_WITH_ATTENTION.get(request.param, {})
    return write_tiny_model(folder / request.param, model=request.param, **sizes)


@pytest.fixture(scope="module")
def transformer(folder: Path) -> Path:
    return write_tiny_model(folder / "one", model="transformer", **SIZES_WITH_ATTENTION["transformer"])

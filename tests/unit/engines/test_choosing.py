"""Which engine translates with a model, and what is said of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmt.engines import EngineKind, EngineSpec, engines
from nmt.engines.model_engine import ModelEngine
from nmt.engines.native import NativeEngine
from nmt.errors import UsageError
from nmt.models.loading import LoadedModel
from nmt.native.library import SWITCH, forget, library
from nmt.search.decoding import Engine
from nmt.translation import Translator
from tests.tiny_models import some_lines, write_tiny_model

LINES = some_lines(8)
needs_library = pytest.mark.skipif(library() is None, reason="the C part was not built: no C compiler")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "transformer", model="transformer", updates=60)


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm", updates=60)


def engine_of(translator: Translator) -> Engine:
    return translator._engine


@needs_library
def test_a_transformer_is_translated_with_by_c(transformer: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt.translation"):
        found = Translator.load(transformer, device="cpu", dtype="int8")
    assert isinstance(engine_of(found), NativeEngine)
    assert caplog.messages == ["the native engine translates, in int8"]


@needs_library
def test_what_c_does_not_know_is_translated_with_by_torch(lstm: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt.translation"):
        found = Translator.load(lstm, device="cpu")
    assert isinstance(engine_of(found), ModelEngine)
    assert caplog.messages == [
        "the torch engine translates, in float32 (not native: the C code does not support its architecture)"
    ]


@needs_library
@pytest.mark.parametrize(
    ("sizes", "wide"),
    [({"d_k": 3}, "d_k=3 with model.d_v=8"), ({"d_v": 9}, "d_k=8 with model.d_v=9")],
)
def test_keys_and_values_of_different_widths_are_computed_by_torch(
    tmp_path: Path, sizes: dict[str, int], wide: str, caplog: pytest.LogCaptureFixture
) -> None:
    """C would read beyond their keys and values."""
    path = write_tiny_model(tmp_path / "narrow", model="transformer", updates=1, d_model=16, num_heads=2, **sizes)
    with caplog.at_level(logging.INFO, "nmt.translation"):
        found = Translator.load(path, device="cpu")
    assert isinstance(engine_of(found), ModelEngine) and f"does not support model.{wide}" in caplog.text
    with pytest.raises(UsageError, match="--engine native cannot run this model"):
        Translator.load(path, device="cpu", engine="native")


@needs_library
@pytest.mark.parametrize("width", [8, 5])
def test_heads_may_have_any_width(tmp_path: Path, width: int) -> None:
    sizes = {"d_model": 16, "num_heads": 2, "d_k": width, "d_v": width}
    path = write_tiny_model(tmp_path / "named", model="transformer", updates=1, **sizes)
    assert isinstance(engine_of(Translator.load(path, device="cpu")), NativeEngine)


@needs_library
def test_numbers_that_c_alone_knows_are_float32_elsewhere(lstm: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nmt.translation"):
        found = Translator.load(lstm, device="cpu", dtype="int8")
    assert caplog.messages == [
        "the torch engine translates, in float32, not int8 (not native: the C code does not support its architecture)"
    ]
    assert found.translate(LINES) == Translator.load(lstm, device="cpu").translate(LINES)


def test_without_c_torch_translates(transformer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "off")
    forget()
    try:
        assert isinstance(engine_of(Translator.load(transformer, device="cpu")), ModelEngine)
    finally:
        monkeypatch.undo()
        forget()


@needs_library
@pytest.mark.parametrize("options", [{}, {"search": "greedy"}, {"search": "sampling", "nbest": 2}, {"nbest": 3}])
def test_every_search_finds_the_same_with_both_engines(transformer: Path, options: dict[str, object]) -> None:
    native, torch = (Translator.load(transformer, device="cpu", engine=name) for name in ("native", "torch"))
    assert native.translate(LINES, **options) == torch.translate(LINES, **options)


@needs_library
def test_an_ensemble_may_have_members_of_both(transformer: Path, lstm: Path) -> None:
    paths = f"{transformer}:{lstm}"
    mixed, torch = Translator.load(paths, device="cpu"), Translator.load(paths, device="cpu", engine="torch")
    assert mixed.translate(LINES, nbest=2) == torch.translate(LINES, nbest=2)


def test_an_engine_that_cannot_take_the_model_says_why(lstm: Path) -> None:
    with pytest.raises(UsageError, match="--engine native cannot run this model: .*; use --engine auto"):
        Translator.load(lstm, device="cpu", engine="native")


def test_recorded_steps_are_for_gpus(transformer: Path) -> None:
    with pytest.raises(UsageError, match="--engine graphs cannot run this model: it needs an NVIDIA GPU"):
        Translator.load(transformer, device="cpu", engine="graphs")


def test_recorded_steps_have_no_shortlist(transformer: Path) -> None:
    with pytest.raises(UsageError, match="--shortlist changes the output layer for every batch"):
        Translator.load(transformer, device="cpu", engine="graphs", shortlist="short")


def test_an_unknown_engine_is_answered_with_those_that_there_are(transformer: Path) -> None:
    with pytest.raises(
        UsageError, match=r"unknown engine 'nativ' \(did you mean 'native'\?\); there are: graphs, native"
    ):
        Translator.load(transformer, device="cpu", engine="nativ")


@dataclass
class MirrorConfig:
    pass


@pytest.fixture
def mirror() -> Iterator[list[LoadedModel]]:
    """An engine as a plugin registers it."""
    seen: list[LoadedModel] = []

    class Mirror(EngineKind):
        def __init__(self, config: MirrorConfig) -> None:
            pass

        def misfit(self, model: LoadedModel, spec: EngineSpec) -> str | None:
            return None

        def make(self, model: LoadedModel, spec: EngineSpec) -> Engine:
            seen.append(model)
            return ModelEngine(model.module, spec.device)

    engines.register("mirror", MirrorConfig)(Mirror)
    yield seen
    del engines._entries["mirror"]


def test_a_plugin_may_bring_an_engine(lstm: Path, mirror: list[LoadedModel]) -> None:
    found = Translator.load(lstm, device="cpu", engine="mirror").translate(LINES)
    assert found == Translator.load(lstm, device="cpu", engine="torch").translate(LINES) and len(mirror) == 1

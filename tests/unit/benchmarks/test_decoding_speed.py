"""Other engines beside ours: they hold the same model, or are not timed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nmt.models.transformer.config import StartSymbol
from tests.tiny_models import in_english, some_lines, write_tiny_model

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)  # its scripts import each other
    return importlib.import_module("decoding_speed")


def test_another_engine_with_another_bleu_stops_the_comparison(script: ModuleType) -> None:
    ours = ["a man and two dogs run in the snow"] * 3
    script.require_our_bleu("same", ours, ours, ours)
    script.require_our_bleu("untrained", ["red"] * 3, ours, None)
    with pytest.raises(SystemExit, match=r"^other has BLEU 0\.00, but nmt has 100\.00, so the models differ"):
        script.require_our_bleu("other", ["red"] * 3, ours, ours)


@pytest.mark.nightly
def test_ctranslate2_gets_the_model_from_our_export(script: ModuleType, tmp_path: Path) -> None:
    """Also one that was imported: its decoder reads first what Marian's do."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    imported = {"start_symbol": StartSymbol.pad, "output_bias": True}
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=300, **imported)
    lines = some_lines(20)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "work").mkdir()
    task = script.Task(model, tmp_path / "text", tmp_path / "work", 1, "cpu")
    engine = script.ctranslate2(sys.executable, task, "float32", 1, 1, 16)
    engine.run()
    assert engine.texts() == [in_english(line) for line in lines]

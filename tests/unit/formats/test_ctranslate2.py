"""Models written for CTranslate2, and what it says of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from nmt.config.exchange import ExportConfig, Quantization
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError, UsageError
from nmt.formats.exporting import ExportComparison, export_model
from nmt.models.transformer.config import (
    DecoderKind,
    PositionKind,
)
from tests.unit.formats.stored import HELD, PAIR, store

pytestmark = pytest.mark.slow
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")


def exported(run: Path, output: Path, **options: Any) -> ExportComparison:
    return export_model(
        ExportConfig(path=str(run), format="ctranslate2", output=str(output), **({"sentences": 12} | options))
    )


@pytest.mark.parametrize("name", HELD)
def test_it_says_the_same(tmp_path: Path, name: str) -> None:
    found = exported(store(tmp_path / "run", **HELD[name]), tmp_path / "there")
    assert found.difference < 2e-5 and found.equal == found.sentences == 12
    assert {"model.bin", "config.json", "manifest.json"} <= {path.name for path in (tmp_path / "there").iterdir()}
    assert LanguagePair.load(tmp_path / "there" / "tokenizer").digest() == PAIR.digest()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"positions": PositionKind.alibi}, "supports ALiBi positions only in decoders"),
        ({"decoder": DecoderKind.ssru}, "does not support SSRU decoders .*; export to safetensors"),
        (
            {"positions": PositionKind.relative},
            "shares the vectors of relative positions among heads, but the model has separate ones",
        ),
        ({"d_k": 5}, "needs queries and values of one size, but the model's heads have 5 and 8"),
        ({"d_v": 6}, "needs queries and values of one size, but the model's heads have 8 and 6"),
        (
            {"positions": PositionKind.rotary, "d_k": 6, "d_v": 6},
            "rotary positions only in heads of size d_model / num_heads = 8, but the model's have size 6",
        ),
    ],
)
def test_what_it_cannot_hold_is_said(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        exported(store(tmp_path / "run", **options), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_weights_in_bytes_are_smaller_and_say_almost_the_same(tmp_path: Path) -> None:
    run = store(tmp_path / "run", d_model=64, d_ff=128)
    exported(run, tmp_path / "whole")
    with pytest.raises(DataError, match="log-probabilities differ"):
        exported(run, tmp_path / "bytes", quantization=Quantization.int8, tolerance=0.0)
    found = exported(run, tmp_path / "bytes", quantization=Quantization.int8, tolerance=2.0)
    assert found.difference > 1e-4
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("bytes", "whole")]
    assert sizes[0] < 0.7 * sizes[1]  # the table of positions stays as it is


def test_sentences_of_a_file_are_compared(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    (tmp_path / "text").write_text("p1 p2 p3\n\np4\n")
    assert exported(run, tmp_path / "there", sample=str(tmp_path / "text")).sentences == 2
    (tmp_path / "text").write_text("\n")
    with pytest.raises(DataError, match="has no sentence of 1 to"):
        exported(run, tmp_path / "other", sample=str(tmp_path / "text"))


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store(tmp_path / "run")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=r"needs ctranslate2, which is not installed: pip install 'nmt-toolkit\[ctranslate2\]'"
    ):
        exported(run, tmp_path / "there")


def test_what_is_asked_for_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the model: --path"):
        export_model(ExportConfig(format="ctranslate2", output=str(tmp_path / "there")))
    with pytest.raises(UsageError, match="name the folder to write"):
        export_model(ExportConfig(path="x", format="ctranslate2"))
    with pytest.raises(UsageError, match="name the format: --format ctranslate2"):
        export_model(ExportConfig(path="x", output=str(tmp_path / "there")))
    run = store(tmp_path / "run")
    with pytest.raises(UsageError, match="the format fairseq can be imported, but not exported"):
        export_model(ExportConfig(path=str(run), format="fairseq", output=str(tmp_path / "there")))

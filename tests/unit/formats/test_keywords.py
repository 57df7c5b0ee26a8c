"""nmt.import_model and nmt.export: options as keyword arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

import nmt
from nmt.config.choices import Segmentation
from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.errors import UsageError
from nmt.formats import importing, keywords


def test_keywords_become_the_options_of_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(importing, "import_model", given.append)
    monkeypatch.setattr(keywords, "export_model", given.append)
    nmt.import_model(tmp_path / "x.pt", "here", from_format="fairseq", bpe="sentencepiece", overwrite=True)
    nmt.export("here", tmp_path, format="ctranslate2", quantization=Quantization.int8, tolerance=1)
    path = str(tmp_path / "x.pt")
    assert given == [
        ImportConfig(from_format="fairseq", path=path, output="here", bpe=Segmentation.sentencepiece, overwrite=True),
        ExportConfig("here", "ctranslate2", str(tmp_path), Quantization.int8, tolerance=1.0),
    ]


def test_what_is_no_option_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="import_model has no option 'bep' .did you mean 'bpe'.*output"):
        nmt.import_model("there", "here", from_format="fairseq", bep="none")
    with pytest.raises(UsageError, match="export: quantization='int4' must be one of float32"):
        nmt.export("there", "here", format="ctranslate2", quantization="int4")
    with pytest.raises(UsageError, match="--format ctranslate2|huggingface"):
        nmt.export("there", "here", format="")

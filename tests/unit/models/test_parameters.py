"""The table of docs/reference/models.md that counts parameters against the papers, counted again."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.testing.subjects import load_preset

TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "models.md").read_text(encoding="utf-8")
SECTION = TEXT.split("## Parameters against the papers\n")[1].split("\n## ")[0]
ROWS = re.findall(
    r"^\| `(\w+)` \| ([\d,]+)(?: / ([\d,]+)| joint) \| ([\d,]+) \| ([\d,]+|[\d,.]+ million|-) \|", SECTION, re.M
)

PAPERS = {
    *(
        "transformer_base",
        "transformer_big",
        "lstm_sutskever",
        "lstm_bahdanau",
        "lstm_luong",
        "gnmt_wmt",
        "deep_att_wmt",
    ),
    *("lstm_moe_32", "conv_s2s_wmt_en_de", "conv_s2s_wmt_en_fr", "bytenet_wmt", "neural_gpu_wmt"),
    *("ntm_copy_feedforward", "ntm_copy_lstm"),
}


def number(text: str) -> int:
    return int(text.replace(",", ""))


def count(config: Any, sizes: VocabularySizes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(config, sizes).parameters())


def test_every_preset_of_a_paper_has_a_row() -> None:
    assert len(ROWS) == SECTION.count("\n| `")
    assert {preset for preset, *_ in ROWS} == PAPERS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_table_gives_the_number_of_parameters(row: tuple[str, ...]) -> None:
    preset, source, target, parameters, published = row
    sizes = VocabularySizes(number(source), number(target or source), shared=not target)
    found = count(load_preset(preset), sizes)
    assert f"{found:,}" == parameters
    if published != "-":  # whatever the reasons, no part of a model is missing
        scale = 10**6 if published.endswith("million") else 1
        assert found == pytest.approx(float(published.removesuffix(" million").replace(",", "")) * scale, rel=0.06)


def test_the_mixture_grows_to_the_size_of_the_papers_largest() -> None:
    """8.7 billion with 2,048 experts: Shazeer et al. 2017, tables 2 and 3."""
    found = count(replace(load_preset("lstm_moe_32"), num_experts=2048), VocabularySizes(32_000, 32_000, shared=False))
    assert "8.72 billion" in SECTION and round(found / 1e9, 2) == 8.72

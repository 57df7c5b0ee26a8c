"""What a model that has learned a translation word by word aligns, where everybody knows the right alignment.

The words of a sentence are translated one by one and written from the last to the first. In a decoder of six layers with the
norm before each sublayer it is not the last layer that aligns best. Which one does is found without given alignments, by the
agreement of both directions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.text.links import pharaoh
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.models.transformer.config import NormOrder
from nmt.preprocessing.preprocess import preprocess
from nmt.scoring import TextOptions, scorers
from nmt.testing.subjects import load_preset
from tests.learning.learn import make_splits, teach
from tests.learning.recipes import TRANSFORMER

pytestmark = pytest.mark.nightly  # two models of six layers: a minute and more

RECIPE = replace(TRANSFORMER, updates=400)
SIZES: dict[str, Any] = {**RECIPE.sizes, "decoder_layers": 6, "num_heads": 2, "norm": NormOrder.pre}


def translated(line: str) -> str:
    return line[::-1].upper()


def learned(folder: Path, source: str, target: str) -> str:
    """A run folder; the text lies in the folder above."""
    given: dict[str, Any] = {f"{split}pref": str(folder / split) for split in ("train", "valid")}
    corpus = folder / f"{source}-{target}"
    preprocess(PreprocessConfig(source, target, tokenizer=WordsConfig(), destdir=str(corpus), **given))
    run = folder / f"run-{source}-{target}"
    teach(replace(load_preset("transformer_tiny"), **SIZES), RECIPE, [corpus], run, seed=1)
    return str(run)


def error_rate(links: list[list[tuple[int, int]]], sources: list[str]) -> float:
    """Per cent, by the metric of nmt-score."""
    lengths = [len(line.split()) for line in sources]
    gold = [" ".join(f"{i}-{length - 1 - i}" for i in range(length)) for length in lengths]
    metric = scorers.build(scorers.config_class("aer")(), TextOptions())
    return metric(list(map(pharaoh, links)), [gold]).value


def test_both_directions_find_the_layer_that_aligns(tmp_path: Path) -> None:
    splits = make_splits()
    for split, lines in splits.items():
        (tmp_path / f"{split}.x").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{split}.y").write_text("".join(f"{translated(line)}\n" for line in lines))
    ahead, back = learned(tmp_path, "x", "y"), learned(tmp_path, "y", "x")
    sources, references = splits["test"], list(map(translated, splits["test"]))

    def found(**options: Any) -> float:
        return error_rate(nmt.align(ahead, sources, references, device="cpu", **options), sources)

    last, chosen, symmetrized = found(), found(reverse=back, symmetrize="none"), found(reverse=back)
    print(f"AER: last layer {last:.1f}, chosen by agreement {chosen:.1f}, symmetrized {symmetrized:.1f}")
    assert symmetrized < 15.0 < last and symmetrized < chosen < last

"""What a Python shell shows of an object of ours is one short line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import nmt
from nmt.averaging import Average, Row
from nmt.data.corpus.folder import Corpus
from nmt.reporting.attention_page import ShownAttention
from nmt.translation import TranslatedText, Translation
from tests.tiny_models import in_english, some_lines, tiny_pair


def test_objects_are_shown_in_one_line(tmp_path: Path) -> None:
    pairs = [(line, in_english(line)) for line in some_lines(20)]
    report = nmt.preprocess(pairs, destdir=tmp_path / "c", tokenizer=tiny_pair(), valid=pairs[:3])
    corpus = Corpus.open(tmp_path / "c")
    text = TranslatedText("two dogs", ["two", "dogs"], -0.5, [-0.1, -0.2, -0.2], np.zeros((3, 3)), True)
    scores = nmt.score(["two dogs run"], ["two dogs run"], metrics=["chrf"])
    comparison = nmt.compare({"a": ["two dogs"], "b": ["two"]}, ["two dogs"], metrics=["chrf"])
    attention = ShownAttention(0, ["rot"], ["red"], ["<s>"], {"cross": np.zeros((1, 1, 1, 1))}, {}, "rot", "red")
    assert {repr(thing) for thing in (report, corpus, corpus.split("train"), corpus.pair, text, attention)} == {
        f"<PreprocessReport {tmp_path / 'c'}: train 20 pairs, valid 3 pairs>",
        f"<Corpus {tmp_path / 'c'}: de-en, train, valid>",
        "<Split train: 20 pairs>",
        "<LanguagePair de-en, joint vocabulary of 18 tokens>",
        "<TranslatedText 'two dogs', score -0.500>",
        "<ShownAttention 'rot' -> 'red': cross>",
    }
    assert (
        repr(Translation(0, "zwei hunde", ["zwei"], [text])) == "<Translation 'zwei hunde' -> 'two dogs', 1 hypothesis>"
    )
    assert repr(scores) == "{'chrf': <Figure chrF2 100.00>}"
    assert repr(comparison) == "<Comparison of a, b: one line, chrf>"
    assert repr(Average(Path("a"), [Row("a", 1, {"loss": 1.5})])) == "<Average a: loss 1.5000>"

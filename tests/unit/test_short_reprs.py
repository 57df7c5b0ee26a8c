"""What a Python shell shows of an object of ours is one short line."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import torch

import nmt
from nmt.averaging import Average, Row
from nmt.config import commands
from nmt.config.sections import BatchingConfig, TrainConfig
from nmt.criterions import criterions
from nmt.data.augmentations import augmentations
from nmt.data.batching.batch import collate
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers import tokenizers
from nmt.formats import formats
from nmt.interface import LossReport
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig
from nmt.optim import optimizers, schedulers
from nmt.optim.config import AdamConfig
from nmt.reporting.attention_page import ShownAttention
from nmt.search import searches
from nmt.short_repr import ShortRepr
from nmt.translation import TranslatedText, Translation
from tests.tiny_models import in_english, some_lines, tiny_pair


def test_options_are_shown_if_they_differ_from_their_defaults() -> None:
    model = TransformerConfig(d_model=64)
    config = TrainConfig(["c"], model=model, optimizer=AdamConfig(), batching=BatchingConfig(max_tokens=9))
    assert repr(config) == (
        "TrainConfig(data=['c'], model=TransformerConfig(d_model=64), optimizer=AdamConfig(), "
        "batching=BatchingConfig(max_tokens=9))"
    )


def test_every_dataclass_of_options_has_a_short_repr() -> None:
    registries = (augmentations, criterions, formats, models, optimizers, schedulers, searches, tokenizers)
    kinds = {registry.config_class(name) for registry in registries for name in registry.names()}
    kinds |= {type(getattr(TrainConfig(), field.name)) for field in fields(TrainConfig) if "section" in field.metadata}
    kinds |= {getattr(commands, name) for name in dir(commands) if name.endswith("Config")}
    long = {kind for kind in kinds if is_dataclass(kind) and fields(kind) and not issubclass(kind, ShortRepr)}
    assert not long


def test_tensors_are_shown_by_type_and_shape() -> None:
    two = torch.zeros(2, dtype=torch.int64)
    report = LossReport(torch.tensor(1.5), torch.tensor(1.5), two, two, 1, auxiliary={"balance": torch.ones(())})
    assert repr(report) == (
        "LossReport(loss_sum=float32[], nll_sum=float32[], denominator=int64[2], num_tokens=int64[2], num_sentences=1, "
        "auxiliary={'balance': float32[]})"
    )
    assert repr(collate([np.array([4, 2])], [np.array([5, 5, 2])])).startswith("Batch(source=int64[1, 2], ")


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

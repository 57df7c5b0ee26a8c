"""One model learns two tasks from two corpora, and the tag says which of them is wanted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.testing.subjects import load_preset
from nmt.translation import Translator
from tests.learning.learn import PASSED, SYMBOLS, TASKS, make_splits, teach
from tests.learning.recipes import TRANSFORMER

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


def test_a_model_does_what_the_tag_says(tmp_path: Path) -> None:
    splits = make_splits()
    (tmp_path / "words.txt").write_text("".join(f"{word}\n" for word in ("<2copy>", "<2reverse>", *SYMBOLS)))
    for task, step in TASKS.items():
        folder = tmp_path / task
        folder.mkdir()
        for split, lines in splits.items():
            (folder / f"{split}.src").write_text("".join(f"{line}\n" for line in lines))
            (folder / f"{split}.tgt").write_text("".join(f"{line[::step]}\n" for line in lines))
        config = PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, tag=task)
        words = str(tmp_path / "words.txt")
        given = {"srcdict": words, "trainpref": f"{folder}/train", "validpref": f"{folder}/valid"}
        preprocess(replace(config, **given, destdir=f"{folder}/corpus"))
    recipe = replace(TRANSFORMER, updates=2 * TRANSFORMER.updates)
    model = replace(load_preset("transformer_tiny"), **recipe.sizes)
    teach(model, recipe, [tmp_path / task / "corpus" for task in TASKS], tmp_path / "run", seed=1)
    translator = Translator.load(tmp_path / "run", device="cpu")
    assert translator.pair.direction().source == translator.pair.direction(target_lang="copy").source
    for task, step in TASKS.items():
        found = translator.translate(splits["test"], search="greedy", tag=task)
        right = sum(text == line[::step] for text, line in zip(found, splits["test"]))
        print(f"{task}: {100 * right / len(found):.1f} %")
        assert 100 * right / len(found) > PASSED, task

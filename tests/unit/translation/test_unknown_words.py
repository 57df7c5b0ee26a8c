"""Unknown words become what they attend to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nmt.config.choices import PieceMarks
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import DataError, UsageError
from nmt.interface import Hypothesis
from nmt.translation import Translator
from nmt.translation.lines import read_dictionary, replace_unknown_words
from tests.tiny_models import WORDS, in_english, write_tiny_model

SOURCE, TARGET = (WordTokenizer(WordsConfig(), words.split()) for words in ("der hund heisst", "the dog is called"))
PAIR = LanguagePair("de", "en", SOURCE, TARGET, shared=False)


def hypothesis(words: str, attended: list[int] | None, width: int) -> Hypothesis:
    ids = [*TARGET.encode([words])[0].tolist(), EOS]
    attention = None
    if attended is not None:
        attention = torch.full((len(ids), width), 0.1)
        for row, column in enumerate(attended):
            attention[row, column] = 0.5
    return Hypothesis(torch.tensor(ids), 0.0, 0.0, torch.zeros(len(ids)), attention)


def test_an_unknown_word_is_copied_from_where_it_looks() -> None:
    found = hypothesis("the dog is called X", [0, 1, 2, 2, 3, 4], width=5)
    assert found.tokens[4] == UNK
    assert replace_unknown_words(found, "der hund heisst Bello", 0, PAIR, {}) == "the dog is called Bello"
    assert replace_unknown_words(found, "der hund heisst Bello", 0, PAIR, {"Bello": "Rex"}) == "the dog is called Rex"


def test_the_end_of_the_source_stands_for_no_word_and_parts_begin_where_they_begin() -> None:
    found = hypothesis("X is X", [2, 0, 0, 1], width=3)  # the first one looks at eos most of all
    found.attention[0, 1] = 0.4  # type: ignore[index]
    assert replace_unknown_words(found, "der hund Anna Bert", 2, PAIR, {}) == "Bert is Anna"


def test_a_text_without_unknown_words_stays_what_it_is() -> None:
    assert replace_unknown_words(hypothesis("the dog", [0, 1, 2], 3), "der hund", 0, PAIR, {}) == "the dog"


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="--replace-unk needs attention, which the model does not have"):
        replace_unknown_words(hypothesis("the X", None, 3), "der hund", 0, PAIR, {})


def test_a_dictionary_is_read_and_what_is_wrong_with_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dictionary"
    path.write_text("Haus house\n\nHund\tbig dog\nHaus building\n \n", encoding="utf-8")
    assert read_dictionary(path) == {"Haus": "house", "Hund": "big dog"}
    path.write_text("Haus house\nHund\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"dictionary:2 has no translation; write a source word, a space and its translation"
    ):
        read_dictionary(path)


def test_a_piece_that_is_copied_is_joined_like_any_other() -> None:
    pair = LanguagePair("de", "en", SOURCE, TARGET.joining(PieceMarks.subword_nmt), shared=False)
    found = hypothesis("the dog is called X Y", [0, 1, 2, 2, 3, 4, 5], width=6)
    assert replace_unknown_words(found, "der hund heisst Bel@@ lo", 0, pair, {}) == "the dog is called Bello"
    dictionary = {"Bel@@": "Re@@", "lo": "x"}
    assert replace_unknown_words(found, "der hund heisst Bel@@ lo", 0, pair, dictionary) == "the dog is called Rex"


def test_conv_s2s_replaces_unknown_words_by_the_mean_of_its_layers_attention(tmp_path: Path) -> None:
    """As section 4.3 of its paper does: from a dictionary, else the source word."""
    known = tuple(word for word in WORDS if word not in ("schnee", "snow"))
    model = write_tiny_model(tmp_path / "model", model="conv_s2s", words=known, updates=150)
    (tmp_path / "dictionary").write_text("schnee powder\n", encoding="utf-8")
    translator = Translator.load(model)
    for line in ("ein schnee", "schnee laufen", "zwei schnee"):
        before, after = in_english(line).split("snow")
        assert translator.translate([line], replace_unk=True) == [f"{before}schnee{after}"]
        found = translator.translate([line], replace_unk=True, unk_dictionary=str(tmp_path / "dictionary"))
        assert found == [f"{before}powder{after}"]


def test_a_tag_that_was_typed_is_no_word_of_the_line_and_an_unknown_one_is() -> None:
    found = hypothesis("X X", [1, 2], 4)
    for line, pieces in (("<2fr> Anna Bert", 2), ("\u2581 <2fr> Anna Bert", 2), ("Anna Bert", 2)):
        assert replace_unknown_words(found, line, 0, PAIR, {}, 1, pieces) == "Anna Bert"
    assert replace_unknown_words(hypothesis("X X", [0, 1], 3), "<2fr> Bert", 0, PAIR, {}, 0, 2) == "<2fr> Bert"

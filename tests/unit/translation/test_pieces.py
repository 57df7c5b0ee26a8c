"""Translations of a model whose text was cut by subword-nmt before it learned from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt import Translator
from nmt.config.choices import PieceMarks
from nmt.config.commands import GenerateConfig
from nmt.config.translation import TranslationOptions
from nmt.data.language_pair import LanguagePair
from nmt.data.text.piece_marks import joined
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.errors import UsageError
from nmt.search.beam import BeamConfig
from nmt.translation import Line, TranslatedText, Translation
from nmt.translation.choosing import ReverseModel
from nmt.translation.lines import LineOrPause
from tests.tiny_models import WORDS, write_tiny_model

SUBWORD = PieceMarks.subword_nmt
LINES = ["ein mann", Line("zwei hunde", prefix="hau@@ s"), "", Line("rot", include=("hau@@ s",))]


def cut_pair(marks: PieceMarks) -> LanguagePair:
    tokenizer = WordTokenizer(WordsConfig(), (*WORDS, "hau@@", "s")).joining(marks)
    return LanguagePair("de", "en", tokenizer, tokenizer, shared=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "cut", updates=60, pair=cut_pair(SUBWORD))


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, device="cpu")


def texts_and_pieces(translator: Translator, lines: list[str | Line], **options: Any) -> list[tuple[str, str]]:
    found = translator.translations(lines, **options)
    return [(one.text, " ".join(one.pieces)) for translation in found for one in translation.hypotheses]


def test_a_model_joins_the_pieces_that_its_corpus_says_text_was_cut_into(translator: Translator) -> None:
    found = texts_and_pieces(translator, LINES, beam=4, nbest=3)
    assert len(found) == 10  # of the blank line there is one
    assert all(text == joined(pieces, SUBWORD) for text, pieces in found)
    texts = translator.translate(LINES, beam=4)
    assert "haus" in texts[1] and "haus" in texts[3] and not any("@@" in text for text in texts)


def test_pieces_are_left_apart_where_that_is_asked_for(translator: Translator) -> None:
    found = texts_and_pieces(translator, LINES, remove_bpe="none", search="beam")
    assert all(text == pieces for text, pieces in found)
    assert found[1][0].startswith("hau@@ s")


@pytest.mark.parametrize("marks", list(PieceMarks))
def test_the_option_goes_before_what_the_corpus_says(translator: Translator, marks: PieceMarks) -> None:
    text, pieces = texts_and_pieces(translator, LINES[1:2], remove_bpe=marks.value)[0]
    assert text == joined(pieces, marks)


def test_a_mark_that_does_not_exist_is_refused(translator: Translator) -> None:
    with pytest.raises(UsageError, match="none, subword_nmt, sentencepiece"):
        translator.translate(["rot"], remove_bpe="moses")


def test_a_model_without_a_record_writes_pieces_unless_it_is_asked_to_join(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "old", updates=1, pair=cut_pair(PieceMarks.none))
    translator = Translator.load(folder, device="cpu")
    line = Line("rot", prefix="hau@@ s")
    assert translator.translate([line])[0].startswith("hau@@ s")
    assert translator.translate([line], remove_bpe="subword_nmt")[0].startswith("haus")


def test_alignments_are_between_pieces(translator: Translator) -> None:
    (found,) = translator.translations(["zwei hau@@ s"], alignment=True)
    best = found.hypotheses[0]
    assert found.source == "zwei hau@@ s" and found.source_pieces == ["zwei", "hau@@", "s"]
    assert [target for _, target in best.alignment] == list(range(len(best.pieces)))
    assert best.attention is not None and best.attention.shape[1] == 4


def test_a_reference_is_scored_in_pieces_and_shown_in_words(translator: Translator) -> None:
    config = TranslationOptions(search=BeamConfig(), score_reference=True)
    (found,) = translator.hypotheses([Line("zwei hunde", reference="two hau@@ s")], config)
    (one,) = found.hypotheses
    assert one.pieces == ["two", "hau@@", "s"] and len(one.token_scores) == 4
    assert one.text == "two haus"


def test_a_phrase_in_pieces_can_be_left_out(translator: Translator) -> None:
    asked = Line("zwei hunde", prefix="hau@@", exclude=("hau@@ s",))
    (found,) = translator.translations([asked], search="beam")
    assert found.hypotheses[0].pieces[0] == "hau@@"
    assert "haus" not in found.hypotheses[0].text.split()


@pytest.mark.parametrize(("in_pieces", "expected"), [(True, "two hau@@ s"), (False, "two haus")])
def test_a_model_of_the_other_direction_reads_pieces_or_words(in_pieces: bool, expected: str) -> None:
    read: list[LineOrPause] = []

    def score(
        lines: Iterator[LineOrPause], numbers: Iterator[int], config: TranslationOptions
    ) -> Iterator[Translation]:
        for line in lines:
            read.append(line)
            yield Translation(next(numbers), expected, ["x"], [TranslatedText("", [], -1.0, [], None, True)])

    one = TranslatedText("two haus", ["two", "hau@@", "s"], -1.0, [], None, True)
    forward = Translation(0, "zwei hau@@ s", ["zwei", "hau@@", "s"], [one])
    config = GenerateConfig(rerank="back", search=BeamConfig())
    assert len(list(ReverseModel(score, 1.0, config, in_pieces=in_pieces)(iter([forward])))) == 1
    assert read == [Line(expected, reference="zwei hau@@ s")]

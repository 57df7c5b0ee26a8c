"""What ``Translator.translations`` tells beside the text: scores, several translations of a line, alignments."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from nmt import Translator
from nmt.config.choices import AlignmentKind
from nmt.config.translation import TranslationOptions
from nmt.errors import UsageError
from nmt.models.recurrent.config import AttentionKind
from nmt.search.config import BeamConfig
from nmt.translation import Line, TranslatedText
from tests.tiny_models import some_lines, write_tiny_model

LINES = [*some_lines(6, seed=2), ""]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(write_tiny_model(tmp_path_factory.mktemp("models") / "lstm"), device="cpu")


def test_the_best_translation_of_each_line_is_that_of_translate(translator: Translator) -> None:
    found = translator.translations(LINES, beam=3)
    assert [one.hypotheses[0].text for one in found] == translator.translate(LINES, beam=3)
    assert [one.source for one in found] == LINES and [one.number for one in found] == list(range(len(LINES)))


def test_each_line_has_its_n_best_translations_best_first(translator: Translator) -> None:
    *found, empty = translator.translations(LINES, beam=4, nbest=3)
    for one in found:
        scores = [hypothesis.score for hypothesis in one.hypotheses]
        assert len(set(scores)) == 3 and scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.pieces) for hypothesis in one.hypotheses}) == 3
    assert [hypothesis.text for hypothesis in empty.hypotheses] == [""]


@pytest.mark.parametrize("search", ["beam", "greedy", "sampling"])
def test_scores_are_those_of_the_pieces_and_of_the_end(translator: Translator, search: str) -> None:
    for one in translator.translations(LINES[:-1], search=search):
        best = one.hypotheses[0]
        assert len(best.token_scores) == len(best.pieces) + 1
        assert all(score <= 0 for score in best.token_scores) and math.isfinite(best.score)
        assert best.log_probability == pytest.approx(sum(best.token_scores))


def test_an_alignment_names_the_source_piece_that_each_target_piece_looks_at_most(translator: Translator) -> None:
    for one in translator.translations(LINES[:-1], alignment=True):
        best = one.hypotheses[0]
        assert best.attention is not None
        assert best.attention.shape == (len(best.pieces) + 1, len(one.source_pieces) + 1)
        expected = [(int(row[:-1].argmax()), target) for target, row in enumerate(best.attention[:-1])]
        assert best.alignment == expected and len(expected) == len(best.pieces)


def test_an_alignment_leaves_the_ends_out_on_both_sides() -> None:
    attention = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.1, 0.6], [0.0, 0.0, 1.0]])
    one = TranslatedText("a b", ["a", "b"], -1.0, [-0.5, -0.5, 0.0], attention, True)
    assert one.alignment == [(1, 0), (0, 1)]


def test_an_alignment_is_kept_only_where_it_is_asked_for_and_changes_no_translation(translator: Translator) -> None:
    with_it, without = (translator.translations(LINES, alignment=asked) for asked in (True, False))
    assert not any(hypothesis.alignment for one in without for hypothesis in one.hypotheses)
    assert [one.hypotheses[0].text for one in with_it] == [one.hypotheses[0].text for one in without]
    assert with_it[-1].hypotheses[0].alignment == []


def test_a_line_with_wishes_is_answered_as_nmt_generate_does(translator: Translator) -> None:
    line = Line("ein mann", prefix="two")
    config = TranslationOptions(search=BeamConfig(), nbest=2, print_alignment=AlignmentKind.hard)
    (expected,) = translator.hypotheses([line], config)
    (found,) = translator.translations([line], nbest=2, alignment=True, search="beam")
    assert found.hypotheses[0].text.startswith("two")
    assert [(one.text, one.score, one.alignment) for one in found.hypotheses] == [
        (one.text, one.score, one.alignment) for one in expected.hypotheses
    ]


def test_an_alignment_of_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "plain", updates=1, attention=AttentionKind.none)
    translator = Translator.load(folder, device="cpu")
    assert len(translator.translations(["rot"])) == 1
    with pytest.raises(UsageError, match="alignment=True needs attention, which the model does not have"):
        translator.translations(["rot", ""], alignment=True)
    assert translator.translations([""], alignment=True)[0].hypotheses[0].alignment == []


def test_what_is_found_cannot_be_changed(translator: Translator) -> None:
    (found,) = translator.translations(["rot"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.hypotheses[0].text = "blue"  # type: ignore[misc]


@pytest.mark.parametrize("line", ["rot", Line("rot")], ids=["text", "Line"])
@pytest.mark.parametrize("method", ["translate", "translations"])
def test_a_single_line_without_brackets_is_refused(translator: Translator, method: str, line: str | Line) -> None:
    with pytest.raises(UsageError, match=rf"put a single one in brackets: {method}\(\[line\]\)"):
        getattr(translator, method)(line)


def test_an_unknown_option_is_refused(translator: Translator) -> None:
    with pytest.raises(UsageError, match="no option 'nbests' .did you mean 'nbest'"):
        translator.translations(["rot"], nbests=3)

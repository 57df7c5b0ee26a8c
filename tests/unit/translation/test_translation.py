"""The Translator: text in, text out, whatever the lines are."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt import Translator, workers
from nmt.config.choices import AlignmentKind, LongLines, MbrMetric, Precision
from nmt.config.commands import GenerateConfig
from nmt.config.translation import TranslationOptions
from nmt.data.text.lines import PAUSE
from nmt.errors import DataError, DeviceError, MissingInputError, UsageError
from nmt.search import searches
from nmt.search.config import MOST_PIECES, BeamConfig, GreedyConfig, SamplingConfig
from nmt.search.forced import ForcedSearch
from nmt.storage.checkpoints import read_checkpoint, write_checkpoint
from nmt.storage.run_folder import set_pointer
from nmt.translation import Line, TranslatedText, Translation
from nmt.translation.choosing import ReverseModel, Score, minimum_bayes_risk
from nmt.translation.lines import LineOrPause, join_parts
from tests.tiny_models import WORDS, in_english, some_lines, write_tiny_model

LINES = some_lines(30, seed=5, longest=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder, device="cpu")


def hypotheses(translator: Translator, lines: list[str], **options: object) -> list[Translation]:
    return list(translator.hypotheses(lines, TranslationOptions(search=BeamConfig(), **options)))


def test_lines_are_translated_in_their_order(translator):
    assert translator.translate(LINES, beam=4) == [in_english(line) for line in LINES]


def test_greedy_search_is_chosen_by_name(translator):
    assert translator.translate(LINES[:5], search="greedy") == [in_english(line) for line in LINES[:5]]


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"max_tokens": 1}, {"buffer_size": 3}, {"buffer_size": 1}])
def test_batches_and_windows_change_nothing(translator, options):
    assert translator.translate(LINES, **options) == translator.translate(LINES)


def test_permuted_lines_give_permuted_translations(translator):
    order = np.random.default_rng(1).permutation(len(LINES))
    translations = translator.translate(LINES)
    assert translator.translate([LINES[i] for i in order]) == [translations[i] for i in order]


def test_window_is_all_that_is_read_ahead(translator):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield "ein mann"

    config = TranslationOptions(search=BeamConfig(), buffer_size=4)
    found = list(itertools.islice(translator.hypotheses(endless(), config), 5))
    assert [one.number for one in found] == [0, 1, 2, 3, 4]
    assert len(taken) == 8


@pytest.mark.parametrize("blank", ["", " ", "\t \t", "\u3000", None])
def test_blank_line_is_translated_to_an_empty_one_without_the_model(translator, monkeypatch, blank):
    cannot_translate = SimpleNamespace(usual_tokens=100, longest_source=None)
    monkeypatch.setattr(translator, "_engine", cannot_translate)
    config = TranslationOptions(search=BeamConfig())
    assert [one.hypotheses[0].text for one in translator.hypotheses([blank, blank], config)] == ["", ""]


def test_blank_lines_keep_their_places_among_others(translator):
    assert translator.translate(["", "ein mann", " ", "rot", ""]) == ["", "a man", "", "red", ""]


def test_no_lines_give_no_translations(translator):
    assert translator.translate([]) == []


def test_nbest_gives_that_many_lines_for_each_line(translator):
    found = translator.translate(["ein mann", "", "rot"], beam=3, nbest=3)
    assert len(found) == 9
    assert found[0] == "a man" and found[3:6] == ["", "", ""] and found[6] == "red"
    assert len(set(found[:3])) == 3


def test_long_line_is_cut_and_the_warning_names_it(translator, caplog):
    options = {"max_source_length": 2, "buffer_size": 1, "long_lines": "truncate"}
    with caplog.at_level(logging.WARNING, "nmt"):
        found = translator.translate(["rot", "ein mann zwei hunde"], **options)
    assert found == ["red", "a man"]
    assert "line 2 has 4 tokens; only its first 2 are translated" in caplog.text


def test_a_tokenizer_does_not_cut_what_would_be_thrown_away(translator, caplog, monkeypatch):
    """A million characters take some tokenizers minutes."""
    encode, longest = translator.pair.source.encode, []
    monkeypatch.setattr(
        translator.pair.source, "encode", lambda lines: longest.append(max(map(len, lines))) or encode(lines)
    )
    with caplog.at_level(logging.WARNING, "nmt"):
        found = translator.translate(["ein mann " * 100_000, "rot"], max_source_length=2, long_lines="truncate")
    assert found == ["a man", "red"] and max(longest) == 128
    assert "line 1 has 900000 characters; only its first 2 tokens are translated" in caplog.text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (" " * 1000 + "ein mann", "a man"),
        ("ein" + " " * 1000 + "mann", "a man"),
        ("ein" + " " * 1000 + "mann zwei hunde", "a man"),
        (" " * 124 + "ein mann zwei hunde", "a man"),  # 128 characters are tokenized first: they end in "ein "
        (" " * 122 + "ein mann zwei hunde", "a man"),  # and here within a word
        (" " * 1000, ""),
    ],
)
def test_a_truncated_line_loses_nothing_to_runs_of_spaces(translator: Translator, line: str, expected: str) -> None:
    assert translator.translate(["rot", line], max_source_length=2, long_lines="truncate") == ["red", expected]


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_long_line_is_translated_in_parts(translator, caplog, batch_size):
    options = {"max_source_length": 2, "batch_size": batch_size}
    with caplog.at_level(logging.WARNING, "nmt"):
        found = translator.translate(["rot", "ein mann zwei hunde laufen", "schnee"], **options)
    assert found == ["red", "a man two dogs run", "snow"]
    assert "line 2 has 5 tokens; it is translated in 3 parts" in caplog.text


def test_line_whose_translation_is_asked_to_contain_something_is_not_divided(translator, caplog):
    with caplog.at_level(logging.WARNING, "nmt"):
        found = translator.translate([Line("ein mann zwei hunde", include=("snow",))], max_source_length=2)
    assert "snow" in found[0] and "only its first 2 are translated" in caplog.text


@pytest.mark.parametrize("lengths", [{"max_length": 3}, {"min_length": 3}])
def test_a_line_with_lengths_of_its_own_is_not_divided(
    translator: Translator, caplog: pytest.LogCaptureFixture, lengths: dict[str, int]
) -> None:
    (found,) = translator.translate([Line("ein mann zwei hunde", **lengths)], max_source_length=2)
    assert len(found.split()) <= 3 and "line 1 has 4 tokens; only its first 2 are translated" in caplog.text


def test_of_a_divided_line_the_first_part_has_the_prefix_and_each_leaves_phrases_out(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Line("ein mann zwei hunde laufen ein", prefix="red", exclude=("two", "a"))
    plain, found = hypotheses(translator, [Line(asked.text), asked], max_source_length=2)
    assert [len(one.source_pieces) for one in (plain, found)] == [6, 6] and found.parts == 3
    words = found.hypotheses[0].text.split()
    assert words[0] == "red" and words.count("red") == 1
    assert not {"two", "a"} & set(words) and {"two", "a"} < set(plain.hypotheses[0].text.split())
    assert "line 2 has 6 tokens; it is translated in 3 parts" in caplog.text


def test_reference_of_a_line_that_is_too_long_is_refused_by_its_number(translator):
    config = TranslationOptions(search=BeamConfig(), score_reference=True, max_source_length=2)
    lines = [Line("rot", reference="red"), Line("ein mann rot", reference="a man red")]
    with pytest.raises(DataError, match=r"line 2 has 3 tokens, more than 2, so its reference cannot be scored"):
        list(translator.hypotheses(lines, config))


def test_reference_that_the_model_cannot_write_is_refused_by_its_number(tmp_path, caplog):
    path = write_tiny_model(tmp_path / "m", model="transformer", updates=0, max_positions=8, **learned_positions())
    lines = [Line("rot", reference="red"), Line("ein mann", reference="a man " * 5)]
    config = TranslationOptions(search=BeamConfig(), score_reference=True)
    scored = Translator.load(path)
    with pytest.raises(
        DataError, match=r"the reference of line 2 has 10 tokens, but the model writes at most 7; remove"
    ):
        list(scored.hypotheses(lines, config))
    beginning = dataclasses.replace(config, long_lines=LongLines.truncate)
    with caplog.at_level(logging.WARNING, "nmt"):
        (_, cut) = scored.hypotheses(lines, beginning)
    assert (
        "the reference of line 2 has 10 tokens, but the model writes at most 7; only the first 7 are scored"
        in caplog.text
    )
    assert not cut.hypotheses[0].finished and len(cut.hypotheses[0].pieces) == 7


def test_line_of_a_hundred_thousand_words_is_translated(translator, caplog):
    with caplog.at_level(logging.WARNING, "nmt"):
        assert len(translator.translate(["rot " * 100_000], max_len_a=0, max_len_b=3)) == 1
    assert "line 1 has 100000 tokens; it is translated in 98 parts" in caplog.text


def test_line_beyond_the_positions_of_a_model_is_divided(tmp_path, caplog):
    path = write_tiny_model(tmp_path / "m", model="transformer", updates=0, max_positions=8, **learned_positions())
    with caplog.at_level(logging.WARNING, "nmt"):
        found = hypotheses(Translator.load(path), ["rot " * 20], long_lines=LongLines.truncate)
        whole = hypotheses(Translator.load(path), ["rot " * 20])
    assert "only its first 7 are translated (the model's maximum)" in caplog.text
    assert "it is translated in 3 parts (the model's maximum)" in caplog.text
    assert found[0].source_pieces == ["rot"] * 7 and whole[0].source_pieces == ["rot"] * 20
    assert len(found[0].hypotheses[0].token_scores) <= 8


def test_what_was_read_before_a_pause_is_answered_before_more_is_read(translator):
    asked = iter(["ein mann", "", PAUSE, "", PAUSE, "rot"])
    read = []

    def lines():
        for line in asked:
            read.append(line)
            yield line

    found = translator.hypotheses(lines(), TranslationOptions(search=BeamConfig()))
    assert [next(found).hypotheses[0].text, next(found).hypotheses[0].text] == ["a man", ""]
    assert read == ["ein mann", "", PAUSE]
    assert next(found).number == 2 and read[-2:] == ["", PAUSE]
    assert [one.hypotheses[0].text for one in found] == ["red"]


@pytest.mark.skipif(not workers.possible(), reason="processes cannot be copied here")
def test_several_processes_translate_as_one_does(folder, translator):
    lines = some_lines(60, longest=6) + [""]
    together = Translator.load(folder, workers=3)
    options = {"batch_size": 4, "buffer_size": 25}
    assert together.translate(lines, **options) == translator.translate(lines)
    config = TranslationOptions(search=BeamConfig(), print_alignment=AlignmentKind.soft, **options)
    for one, other in zip(together.hypotheses(lines, config), translator.hypotheses(lines, config), strict=True):
        assert one.number == other.number and one.hypotheses[0].text == other.hypotheses[0].text
        assert one.hypotheses[0].score == pytest.approx(other.hypotheses[0].score, abs=1e-4)
        if other.hypotheses[0].attention is not None:
            np.testing.assert_allclose(one.hypotheses[0].attention, other.hypotheses[0].attention, atol=1e-4)


def learned_positions() -> dict[str, object]:
    from nmt.models.transformer.config import PositionKind

    return {"positions": PositionKind.learned}


def test_lone_surrogate_is_a_data_error_that_names_the_line(translator):
    with pytest.raises(DataError, match=r"sentence 4.*U\+D800"):
        translator.translate(["a", "b", "c", "\ud800"], buffer_size=3)


def test_text_of_special_tokens_is_text(translator):
    found = hypotheses(translator, ["</s> <pad> <s>"])[0]
    assert len(found.source_pieces) == 3
    assert "<" not in found.hypotheses[0].text


def test_unknown_option_is_refused_with_a_list(translator):
    with pytest.raises(UsageError, match=r"'bem' \(did you mean 'beam'\?\); there are: .*lenpen.*nbest"):
        translator.translate(["a"], bem=4)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam": "four"}, "search.beam_size='four'"),
        ({"beam": 0}, "beam_size=0"),
        ({"nbest": 6, "beam": 5}, "nbest=6"),
        ({"stop": "never"}, "'never'"),
        ({"search": "bean"}, "'beam'"),
    ],
)
def test_wrong_value_of_an_option_is_refused_with_the_value(translator, options, named):
    with pytest.raises(UsageError, match=named):
        translator.translate(["a"], **options)


def test_single_string_is_not_taken_for_a_list_of_letters(translator):
    with pytest.raises(UsageError, match="list of lines"):
        translator.translate("ein mann")


def test_scores_and_pieces_belong_together(translator):
    for found in hypotheses(translator, LINES[:5], nbest=2):
        for one in found.hypotheses:
            assert one.text == " ".join(one.pieces)
            assert len(one.token_scores) == len(one.pieces) + 1
            assert one.finished and one.attention is None
        assert found.hypotheses[0].score >= found.hypotheses[1].score


def test_attention_covers_the_pieces_and_eos_when_asked_for(translator):
    found = hypotheses(translator, ["ein mann", "rot"], print_alignment=AlignmentKind.hard)
    for one in found:
        attention = one.hypotheses[0].attention
        assert attention.shape == (len(one.hypotheses[0].pieces) + 1, len(one.source_pieces) + 1)
        np.testing.assert_allclose(attention.sum(1), np.ones(len(attention)), rtol=1e-5)


def test_progress_counts_every_line_once(translator):
    seen = []
    config = TranslationOptions(search=BeamConfig(), buffer_size=7, batch_size=2)
    list(translator.hypotheses([*LINES, "", " "], config, seen.append))
    assert sum(seen) == len(LINES) + 2


@pytest.mark.parametrize("cpu", [False, True])
def test_batch_that_does_not_fit_is_halved(translator, monkeypatch, caplog, cpu):
    expected = translator.translate(LINES)
    encode = translator._engine.model.encode

    def small_memory(source, lengths):
        if len(source) > 4 and cpu:
            torch.empty(2**61, dtype=torch.uint8)  # the allocator's own error
        if len(source) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(source, lengths)

    monkeypatch.setattr(translator._engine.model, "encode", small_memory)
    assert translator.translate(LINES) == expected
    assert "splitting it into halves" in caplog.text


def test_line_that_does_not_fit_alone_is_a_device_error(translator, monkeypatch):
    def no_memory(source, lengths):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(translator._engine.model, "encode", no_memory)
    with pytest.raises(DeviceError, match="line 2 .* does not fit"):
        translator.translate(["", "ein mann"])


def test_a_reference_that_does_not_fit_is_told_with_its_own_length(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ForcedSearch, "find", no_memory)
    config = TranslationOptions(search=BeamConfig(), score_reference=True)
    with pytest.raises(DeviceError, match=r"line 1 \(5 tokens\) does not fit"):
        list(translator.hypotheses([Line("rot", reference="red " * 5)], config))


def test_ensemble_of_a_model_with_itself_translates_like_it(folder, translator):
    assert Translator.load(f"{folder}:{folder}").translate(LINES) == translator.translate(LINES)


@pytest.mark.slow
def test_ensemble_may_mix_architectures(folder, tmp_path):
    other = write_tiny_model(tmp_path / "transformer", model="transformer")
    assert Translator.load(f"{folder}:{other}").translate(["ein mann", "rot"]) == ["a man", "red"]


def test_ensemble_with_another_vocabulary_is_refused_by_both_names(folder, tmp_path):
    other = write_tiny_model(tmp_path / "other", updates=0, words=(*WORDS, "blau"))
    with pytest.raises(UsageError, match=f"{folder} and {other} have different vocabularies"):
        Translator.load(f"{folder}:{other}")


def test_run_folder_means_its_best_checkpoint(folder, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "checkpoint-0001-00000300").symlink_to(folder)
    write_tiny_model(run / "checkpoint-0002-00000600", updates=0)
    set_pointer(run, "best", run / "checkpoint-0001-00000300")
    set_pointer(run, "last", run / "checkpoint-0002-00000600")
    assert Translator.load(run).translate(["ein mann"]) == ["a man"]


def test_model_in_bf16_translates(folder):
    assert Translator.load(folder, precision=Precision.bf16).translate(["ein mann"]) == ["a man"]


def test_parameters_that_do_not_fit_the_configuration_are_refused_by_name(folder, tmp_path):
    stored = read_checkpoint(folder)
    name = next(iter(stored.model))
    parameters = dict(stored.model) | {name: torch.zeros(3)}
    write_checkpoint(
        tmp_path / "m", model=parameters, config=stored.config, info=stored.info, tokenizer=folder / "tokenizer"
    )
    with pytest.raises(UsageError, match=rf"holds another architecture: {name}: \(3,\) in the checkpoint"):
        Translator.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("path", "kind"), [("", UsageError), ("nowhere", MissingInputError), ("a:b", MissingInputError)]
)
def test_path_without_a_model_is_refused(path, kind):
    with pytest.raises(kind):
        Translator.load(path)


def test_a_translation_begins_with_its_prefix(translator: Translator) -> None:
    lines = [Line("ein mann", prefix="two dogs"), "ein mann", Line("rot", prefix="a")]
    found = translator.translate(lines, beam=4)
    assert found[0].startswith("two dogs") and found[1] == in_english("ein mann") and found[2].startswith("a")


@pytest.mark.parametrize("search", ["beam", "greedy", "diverse_beam", "sampling"])
@pytest.mark.skipif(not workers.possible(), reason="processes cannot be copied here")
def test_a_translation_is_as_long_as_its_line_asks_in_any_process(
    folder: Path, translator: Translator, search: str
) -> None:
    text = "zwei hunde laufen"
    bounds = [(None, None), (7, None), (None, 2), (5, 5), (1, 40)]
    lines = [Line(text, min_length=shortest, max_length=longest) for shortest, longest in bounds]
    options: dict[str, Any] = {"search": search, "min_len": 2, "max_len_a": 0, "max_len_b": 4}
    found = translator.translate(lines, **options)
    lengths = [len(one.split()) for one in found]
    assert 2 <= lengths[0] <= 4 and lengths[1:4] == [7, 2, 5]  # min_length alone makes room for just as many
    assert found[0] == translator.translate([text], **options)[0]
    assert found[4] == translator.translate([text], **options | {"min_len": 1, "max_len_b": 40})[0]
    ensemble = Translator.load(f"{folder}:{folder}", device="cpu", workers=2)
    assert ensemble.translate(lines, batch_size=1, **options) == found


def test_a_translation_contains_phrases_and_leaves_out_others(translator: Translator) -> None:
    plain = in_english("zwei hunde laufen")
    first, *_ = plain.split()
    asked = [Line("zwei hunde laufen", include=("red",)), Line("zwei hunde laufen", exclude=(first,))]
    with_phrase, without = translator.translate(asked, beam=6)
    assert "red" in with_phrase.split() and first not in without.split()


@pytest.mark.parametrize("metric", [MbrMetric.chrf, MbrMetric.bleu])
@pytest.mark.parametrize("search", [BeamConfig(beam_size=6), SamplingConfig(temperature=2.0), None])
def test_what_is_shown_is_chosen_among_all_that_is_found(
    translator: Translator, metric: MbrMetric, search: BeamConfig | SamplingConfig | None
) -> None:
    samples = isinstance(search, SamplingConfig)
    count = 32 if samples else 6 if search else 5
    everything = translator.hypotheses(LINES[:4], TranslationOptions(search=search, nbest=count))
    found = minimum_bayes_risk(everything, metric.value, 2, posterior=not samples)
    shown = list(translator.hypotheses(LINES[:4], TranslationOptions(search=search, nbest=2, mbr=metric)))
    for one, expected in zip(shown, found, strict=True):
        assert [(two.text, two.score) for two in one.hypotheses] == [
            (two.text, two.score) for two in expected.hypotheses[:2]
        ]
    by_name = {"search": "sampling", "temperature": 2.0} if samples else {"beam": count}
    texts = translator.translate(LINES[:4], nbest=2, mbr=metric.name, **by_name)
    assert texts == [two.text for one in shown for two in one.hypotheses]


def test_equal_texts_count_as_often_as_they_were_found() -> None:
    def one(text: str) -> TranslatedText:
        return TranslatedText(text, [text], 0.0, [-1.0], None, True)

    line = Translation(0, "x", ["x"], [one("a b"), one("c d e f"), one("c d e f")])
    (found,) = minimum_bayes_risk([line], "chrf", 3, posterior=False)
    assert [hypothesis.text for hypothesis in found.hypotheses] == ["c d e f", "c d e f", "a b"]
    assert found.hypotheses[0].score == pytest.approx(200 / 3)


def test_minimum_bayes_risk_weighs_by_probability_or_by_number() -> None:
    def one(text: str, probability: float) -> TranslatedText:
        return TranslatedText(text, text.split(), 0.0, [math.log(probability)], None, True)

    line = Translation(0, "x", ["x"], [one("a b c d", 0.9), one("x y z", 0.05), one("x y w", 0.05)])
    best = {
        posterior: next(minimum_bayes_risk([line], "chrf", 1, posterior=posterior)).hypotheses
        for posterior in (True, False)
    }
    assert [found[0].text for found in best.values()] == ["a b c d", "x y z"]
    assert all(len(found) == 1 for found in best.values()) and best[True][0].score > best[False][0].score


def test_ends_of_parts_count_for_how_probable_a_translation_is() -> None:
    def part(text: str, piece: float, end: float) -> TranslatedText:
        return TranslatedText(text, [text], piece + end, [piece, end], None, True)

    likely, unlikely = [part("a", -1.0, -0.1), part("b", -1.0, -5.0)], [part("c", -1.0, -0.1), part("d", -1.0, -0.1)]
    joined = join_parts([likely, unlikely])
    assert [one.log_probability for one in joined] == pytest.approx([-2.2, -7.1])
    assert [sum(one.token_scores) for one in joined] == pytest.approx([-2.1, -2.1])
    (found,) = minimum_bayes_risk([Translation(0, "x", ["x"], joined)], "chrf", 2, posterior=True)
    assert found.hypotheses[0].text == "a c" and found.hypotheses[0].score > 95


def test_options_of_minimum_bayes_risk_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="--choose-among 8 is for --mbr"):
        GenerateConfig(choose_among=8)
    with pytest.raises(UsageError, match="--nbest 9 exceeds the [0-9]+ hypotheses to choose from"):
        GenerateConfig(mbr=MbrMetric.chrf, nbest=9, search=BeamConfig(beam_size=4))


def translated(number: int, source: str, **scores: float) -> Translation:
    hypotheses = [TranslatedText(text, [text], score, [score], None, True) for text, score in scores.items()]
    return Translation(number, source, source.split(), hypotheses)


def test_a_model_of_the_other_direction_reorders_by_the_sum_of_both_scores() -> None:
    asked, of_lines = list[Line](), list[int]()

    def score(lines: Iterator[Line], numbers: Iterator[int], config: TranslationOptions) -> Iterator[Translation]:
        assert config.score_reference and config.nbest == 1 and not config.chooses
        for line, number in zip(lines, numbers):
            asked.append(line)
            of_lines.append(number)
            yield translated(number, line.text, **{line.reference: {"good": -0.5, "bad": -3.0}.get(line.text, -1.0)})

    config = GenerateConfig(rerank="other", nbest=2, search=BeamConfig())
    found = list(
        ReverseModel(score, 0.5, config)(
            [translated(0, "x", bad=-1.0, good=-2.0, other=-9.0), translated(1, "y", other=-1.0)]
        )
    )
    assert [(one.text, one.score) for one in found[0].hypotheses] == [("good", -2.25), ("bad", -2.5)]
    assert [(one.text, one.score) for one in found[1].hypotheses] == [("other", -1.5)]
    assert asked == [Line(text, reference="x") for text in ("bad", "good", "other")] + [Line("other", reference="y")]
    assert of_lines == [0, 0, 0, 1]


def scored_by(backward: Translator) -> Score:
    return lambda lines, numbers, config: backward.hypotheses(
        lines, config, numbers=numbers, called="a translation of line"
    )


@pytest.mark.slow
@pytest.mark.parametrize("buffer_size", [1, 3, 4])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_is_reranked_before_the_next_one_is_waited_for(
    folder: Path, tmp_path: Path, buffer_size: int, workers: int
) -> None:
    """Also where a window was full before the lines paused, and so is closed already."""
    forward = Translator.load(folder, device="cpu", workers=workers)
    backward = Translator.load(write_tiny_model(tmp_path / "back", reverse=True), device="cpu", workers=workers)
    config = GenerateConfig(rerank="back", search=BeamConfig(beam_size=2), buffer_size=buffer_size)
    answered: list[int] = []

    def lines() -> Iterator[LineOrPause]:
        yield from ("rot", "ein mann", "")
        yield PAUSE
        assert answered == [0, 1, 2], "somebody waits for these"
        yield "mann"

    for translation in ReverseModel(scored_by(backward), 1.0, config)(forward.hypotheses(lines(), config)):
        answered.append(translation.number)
    assert answered == [0, 1, 2, 3]


def test_what_reranking_says_names_the_line_that_was_given(
    translator: Translator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backward = Translator.load(write_tiny_model(tmp_path / "back", reverse=True), device="cpu")
    config = GenerateConfig(rerank="back", search=BeamConfig(beam_size=2), max_source_length=2)
    cut = dataclasses.replace(config, long_lines=LongLines.truncate)
    found = list(
        ReverseModel(scored_by(backward), 1.0, cut)([translated(6, "rot", **{"red a man": -1.0, "red": -2.0})])
    )
    assert "a translation of line 7 has 3 tokens; only its first 2 are read" in caplog.text
    assert len(found) == 1


def test_a_line_translated_in_parts_keeps_its_order(translator: Translator, tmp_path: Path) -> None:
    backward = Translator.load(write_tiny_model(tmp_path / "back", reverse=True), device="cpu")
    config = GenerateConfig(rerank="back", search=BeamConfig(beam_size=3), max_source_length=2, nbest=2)
    lines = ["rot ein mann rot", "rot"]
    (parts, one), (expected, _) = (
        list(choose(translator.hypotheses(lines, dataclasses.replace(config, nbest=3))))
        for choose in (ReverseModel(scored_by(backward), 1.0, config), iter)
    )
    assert parts.parts == 2 and parts.hypotheses == expected.hypotheses[:2]
    assert one.parts == 1 and len(one.hypotheses) == 2


@pytest.mark.parametrize(
    ("line", "long_lines"),
    [(Line("rot ein mann rot"), LongLines.truncate), (Line("rot ein mann rot", include=("snow",)), LongLines.split)],
)
def test_a_line_that_lost_its_end_keeps_its_order_and_is_not_read_back(
    translator: Translator, line: Line, long_lines: LongLines
) -> None:
    def score(
        lines: Iterator[LineOrPause], numbers: Iterator[int], config: TranslationOptions
    ) -> Iterator[Translation]:
        for given, number in zip((line for line in lines if line is not PAUSE), numbers):
            assert given == Line(""), "its source is more than what was translated"
            yield translated(number, "", **{"": 0.0})

    config = GenerateConfig(rerank="back", search=BeamConfig(), max_source_length=2, long_lines=long_lines, nbest=2)
    (expected,) = translator.hypotheses([line], dataclasses.replace(config, nbest=3))
    (kept,) = ReverseModel(score, 1.0, config)(translator.hypotheses([line], config))
    assert kept.truncated and kept.hypotheses == expected.hypotheses[:2]


def test_an_empty_translation_is_never_the_best_one_and_an_empty_line_stays_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backward = Translator.load(write_tiny_model(tmp_path / "back", reverse=True, updates=20), device="cpu")
    config = GenerateConfig(rerank="back", search=BeamConfig())
    nothing = Translation(1, "", [], [TranslatedText("", [], 0.0, [], None, True)])
    first, second = ReverseModel(scored_by(backward), 1.0, config)(
        [translated(0, "rot", **{"": -0.1, "red": -2.0}), nothing]
    )
    assert [one.text for one in first.hypotheses] == ["red"] and second.hypotheses == nothing.hypotheses
    assert not caplog.text, "of a hypothesis that says nothing there is nothing to say"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rerank": "x", "mbr": MbrMetric.chrf}, "--mbr and --rerank exclude each other: each sorts the hypotheses"),
        ({"rerank": "x", "score_reference": True}, "omit --nbest, --mbr and --rerank"),
        ({"rerank": "x", "rerank_weight": -1.0}, "rerank_weight=-1.0"),
        ({"rerank_weight": 3.0}, "--rerank-weight 3 is for --rerank"),
        ({"choose_among": 0}, "choose_among=0"),
    ],
)
def test_options_of_choosing_that_contradict_each_other_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        GenerateConfig(search=BeamConfig(), **options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"choose_among": 10, "search": BeamConfig(beam_size=4)},
            r"--choose-among 10 is too many: the search finds 4 per line; lower it",
        ),
        (
            {"choose_among": 10, "search": GreedyConfig()},
            r"--choose-among 10 is too many: the search finds 1 per line; lower it",
        ),
        ({"search": GreedyConfig()}, "needs several hypotheses per line, but the search finds 1"),
    ],
)
@pytest.mark.parametrize("choice", [{"mbr": MbrMetric.chrf}, {"rerank": "x"}])
def test_choosing_among_more_than_the_search_finds_is_refused_in_its_own_words(
    options: dict[str, Any], complaint: str, choice: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        GenerateConfig(**options, **choice)
    assert "nbest" not in str(refused.value)
    GenerateConfig(search=SamplingConfig(), choose_among=100, **choice)


@pytest.mark.parametrize(
    "line", [Line("rot", include=("zebra",)), Line("rot", exclude=("",)), Line("rot", prefix="zebra red")]
)
def test_what_the_vocabulary_cannot_write_cannot_be_asked_for(translator: Translator, line: Line) -> None:
    with pytest.raises(DataError, match="line 2: the model's vocabulary has no tokens for '(zebra.*|)'; remove it"):
        translator.translate(["rot", line])


def test_what_the_vocabulary_cannot_write_is_left_out_anyway(translator: Translator) -> None:
    lines = [Line("rot", exclude=("zebra",)), Line("ein mann", exclude=("zebra", "a"))]
    plain, without = translator.translate(lines)
    assert plain == "red" and "a" not in without.split()


def test_a_single_phrase_is_not_taken_for_letters() -> None:
    with pytest.raises(UsageError, match="include='red' must be a list of phrases"):
        Line("rot", include="red")  # type: ignore[arg-type]


@pytest.mark.parametrize("search", ["beam", "diverse_beam", "greedy", "sampling"])
def test_attention_of_a_model_in_bf16_can_be_shown(folder: Path, search: str) -> None:
    translator = Translator.load(folder, device="cpu", precision="bf16")
    config = TranslationOptions(search=searches.config_class(search)(), print_alignment=AlignmentKind.hard)
    for found in translator.hypotheses(LINES[:3], config):
        attention = found.hypotheses[0].attention
        assert attention is not None and attention.dtype == np.float32


def test_a_reference_is_left_alone_where_none_is_scored(translator: Translator) -> None:
    line = Line("rot ein mann", reference="zebra red red red")
    options = {"max_source_length": 2}
    assert translator.translate([line], **options) == translator.translate([line.text], **options)


@pytest.mark.parametrize(
    "line",
    [
        Line("rot", include=("a man",), exclude=("man",)),
        Line("rot", prefix="a red", exclude=("red",)),
        Line("rot", include=("man", "red"), exclude=("a", "red")),
    ],
)
def test_what_is_asked_for_and_forbidden_at_once_is_refused(translator: Translator, line: Line) -> None:
    with pytest.raises(DataError, match="line 2: the excluded phrase '(man|red)' is part of a required one"):
        translator.translate(["rot", line])


@pytest.mark.parametrize(
    ("phrases", "size", "named"),
    [
        (("red", "a man a man"), 2, "'a man a man'"),
        (("red", "a man", "red"), 1, "'red' and 'red'"),
        (("a man run", "two man run"), 2, "'a man run' and 'two man run'"),
    ],
)
def test_phrases_that_no_translation_could_hold_are_refused(
    translator: Translator, phrases: tuple[str, ...], size: int, named: str
) -> None:
    lines = ["rot", Line("rot", include=phrases)]
    complaint = f"line 2: {named} would repeat an n-gram, which --no-repeat-ngram-size {size} forbids; omit that option"
    with pytest.raises(DataError, match=complaint):
        translator.translate(lines, no_repeat_ngram_size=size)
    translator.translate(lines, max_len_b=20)


def test_a_phrase_that_would_repeat_the_prefix_is_refused(translator: Translator) -> None:
    complaint = "line 1: 'man red' after the prefix would repeat an n-gram, which --no-repeat-ngram-size 1 forbids"
    with pytest.raises(DataError, match=complaint):
        translator.translate([Line("rot", prefix="a man run", include=("man red",))], no_repeat_ngram_size=1)
    (found,) = translator.translate(
        [Line("rot", prefix="a man", include=("man red",))], no_repeat_ngram_size=1, beam=12
    )
    assert found.startswith("a man red")


def test_a_phrase_within_another_may_stand_once(translator: Translator) -> None:
    line = Line("rot", include=("a man", "man run"))
    (found,) = translator.translate([line], no_repeat_ngram_size=1, beam=12)
    assert "a man run" in found


def test_a_phrase_that_is_no_text_is_reported_with_its_line(translator: Translator) -> None:
    with pytest.raises(DataError, match="sentence 2: character 0 is the lone surrogate"):
        translator.translate(["rot", Line("rot", exclude=("red", "\ud800"))])


def test_a_prefix_longer_than_its_line_allows_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="line 2: the prefix has 3 tokens, more than max_length=2; raise max_length"):
        translator.translate(["rot", Line("rot", prefix="a man red", max_length=2)])


def test_lengths_of_a_line_that_nothing_can_have_are_refused() -> None:
    with pytest.raises(UsageError, match="min_length=4 is more than max_length=3"):
        Line("rot", min_length=4, max_length=3)


@pytest.mark.parametrize("name", ["min_length", "max_length"])
def test_a_length_that_no_memory_holds_is_refused(name):
    Line("rot", **{name: MOST_PIECES})
    with pytest.raises(UsageError, match=f"{name}=1000000000 must be a whole number of tokens, from 1 to 10,000"):
        Line("rot", **{name: 10**9})
    with pytest.raises(UsageError, match=r"search.min_len=1000000000 must be at most 10000"):
        BeamConfig(min_len=10**9)
    with pytest.raises(UsageError, match="max_length=2.5 must be a whole number of tokens"):
        Line("rot", max_length=2.5)  # type: ignore[arg-type]


def test_what_is_asked_of_an_empty_line_is_left_out_with_a_word(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    assert translator.translate(["rot", Line(" ", prefix="red")])[1] == ""
    assert "line 2 is empty; its constraints are ignored" in caplog.text


def test_the_longest_limit_changes_no_translation_that_ends_earlier(translator: Translator) -> None:
    assert translator.translate(LINES[:3], max_len_b=MOST_PIECES) == translator.translate(LINES[:3])
    for more in (1e30, 2.0**63):
        with pytest.raises(UsageError, match="search.max_len_b=.* must be at most 10000"):
            translator.translate(LINES[:3], max_len_b=more)

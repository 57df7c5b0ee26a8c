"""Requests to models of several languages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nmt.data.languages import LanguageTokens, SourceToken
from nmt.serving.config import ServeConfig
from nmt.serving.models import Models, ServedModel
from nmt.serving.refusals import Refused
from nmt.serving.request_forms import RequestParser
from nmt.translation import Line

TOKENS = {code: code for code in ("deu_Latn", "eng_Latn", "fra_Latn")}
NLLB = ServedModel("nllb", "", "", "beam", LanguageTokens(TOKENS, SourceToken.source, target=True))
TAGGED = ServedModel("tagged", "nl", "en", "beam", LanguageTokens({"en": "<2en>", "de": "<2de>"}))
NLLB_TO_EN = replace(NLLB, source="deu_Latn", target="eng_Latn")
DE_EN = ServedModel("de-en", "de", "en", "beam")


def parser(*models: ServedModel) -> RequestParser:
    return RequestParser(Models(models), ServeConfig())


def own(*models: ServedModel, **tree: Any) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """The direction of the answer, and those of the lines."""
    request = parser(*models).own(json.dumps(tree).encode())
    lines = [(line.source_lang, line.target_lang) for line in request.lines]
    return (request.model.source, request.model.target), lines


def refused(*models: ServedModel, **tree: Any) -> tuple[int, str]:
    with pytest.raises(Refused) as error:
        own(*models, **tree)
    return error.value.status, error.value.sentence


def test_the_direction_of_a_request_is_that_of_its_lines_unless_they_have_their_own() -> None:
    names = {"source": "deu_Latn", "target": "eng_Latn"}
    asked = ("deu_Latn", "eng_Latn")
    assert own(NLLB, text=["rot", "ein"], **names) == (asked, [asked, asked])
    texts = ["rot", {"text": "ein", "target_lang": "fra_Latn"}, {"text": "ein", "tag": "fra_Latn"}]
    assert own(NLLB, text=texts, **names) == (asked, [asked, ("deu_Latn", "fra_Latn"), ("deu_Latn", "fra_Latn")])
    lines = [{"text": "a", "source_lang": "fra_Latn", "target_lang": "deu_Latn"}]
    assert own(NLLB, text=lines) == (("", ""), [("fra_Latn", "deu_Latn")])
    assert own(NLLB, text="a", source_lang="fra_Latn", target_lang="deu_Latn")[1] == [("fra_Latn", "deu_Latn")]
    assert own(TAGGED, text=["rot", "<2de> rot"]) == (("nl", "en"), [("", ""), ("", "")])  # the line or the model says


def test_a_model_of_one_direction_has_no_languages_to_choose() -> None:
    assert own(DE_EN, text="rot", source="de", target="en") == (("de", "en"), [("", "")])
    assert own(DE_EN, NLLB, text="rot", source="de") == (("de", "en"), [("", "")])
    assert own(DE_EN, NLLB, text="rot", source="deu_Latn", target="eng_Latn")[1] == [("deu_Latn", "eng_Latn")]


@pytest.mark.parametrize(
    ("models", "tree", "sentence"),
    [
        (
            (NLLB,),
            {},
            "text 1: give the source and the target language; the model translates between deu_Latn, eng_Latn",
        ),
        ((NLLB,), {"target": "deu_Latn"}, "text 1: give the source language; the model translates between"),
        ((NLLB,), {"source": "deu_Latn"}, "text 1: give the target language; the model translates between"),
        (
            (NLLB,),
            {"source": "de", "target": "eng_Latn"},
            "the model has no language 'de' (did you mean deu_Latn?); it has deu_Latn, eng_Latn, fra_Latn",
        ),
        ((NLLB,), {"source": "deu_Latn", "target_lang": "en"}, "text 1: the model has no language 'en' (did you mean"),
        (
            (DE_EN, NLLB),
            {"source": "fr", "target": "eng_Latn"},
            "the model has no language 'fr' (did you mean fra_Latn?)",
        ),
        ((NLLB,), {"source": "auto", "target": "eng_Latn"}, "which the server does not detect"),
        ((TAGGED,), {"target": "fr"}, "the model has no language 'fr'"),
        ((NLLB_TO_EN,), {"target": "deu_Latn"}, "the model's default is 'deu_Latn' too; give"),
        ((NLLB_TO_EN,), {"source": "eng_Latn"}, "the model's default is 'eng_Latn' too; give"),
    ],
)
def test_a_language_that_is_missing_or_unknown_has_status_400(
    models: tuple[ServedModel, ...], tree: dict[str, str], sentence: str
) -> None:
    status, answer = refused(*models, text="rot", **tree)
    assert status == 400 and sentence in answer


def test_other_forms_choose_a_direction_too() -> None:
    tree = {"q": "rot\nein", "source": "deu_Latn", "target": "fra_Latn"}
    request, auto = parser(NLLB).libretranslate(tree)
    line = {"source_lang": "deu_Latn", "target_lang": "fra_Latn"}
    assert request.lines == (Line("rot", **line), Line("ein", **line)) and not auto
    opus = parser(NLLB).opus(json.dumps({"from": "deu_Latn", "to": "fra_Latn", "source": "rot"}).encode())
    assert opus.lines == (Line("rot", **line),)
    with pytest.raises(Refused, match="give the source and the target language"):
        parser(NLLB).opennmt(b'[{"src": "rot"}]')
    assert parser(TAGGED).opennmt(b'[{"src": "<2de> rot"}]').lines == (Line("<2de> rot"),)


def test_a_source_language_is_detected_by_no_model_and_needed_by_few() -> None:
    with pytest.raises(Refused, match="does not detect languages; give the source language, one of: deu_Latn"):
        parser(NLLB).libretranslate({"q": "rot", "source": "auto", "target": "fra_Latn"})
    request, _ = parser(TAGGED).libretranslate({"q": "rot", "source": "auto", "target": "de"})
    assert request.lines == (Line("rot", target_lang="de"),) and not request.model.reads_source


def test_the_languages_of_all_models_are_listed() -> None:
    assert Models((DE_EN, TAGGED, NLLB)).languages() == {
        "de": ["en"],
        "nl": ["en", "de"],
        "en": ["de"],
        "deu_Latn": ["eng_Latn", "fra_Latn"],
        "eng_Latn": ["deu_Latn", "fra_Latn"],
        "fra_Latn": ["deu_Latn", "eng_Latn"],
    }


def test_the_default_target_may_have_no_token() -> None:
    opus = ServedModel("opus", "en", "zh", "beam", LanguageTokens({"yue": ">>yue<<"}))
    assert own(opus, text="red")[1] == [("", "")] and own(opus, text="red", target="zh")[1] == [("", "zh")]
    assert own(opus, text="red", target="yue")[1] == [("", "yue")]
    assert opus.targets == ["zh", "yue"]

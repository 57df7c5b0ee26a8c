"""Requests of every form as lines, translations in every form, and what is counted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import AlignmentKind
from nmt.config.option import flags_of, option
from nmt.errors import UsageError
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.serving import answering, request_forms
from nmt.serving.app import policy_of
from nmt.serving.config import ServeConfig, ServedSearch
from nmt.serving.metrics import Histogram, Metrics
from nmt.serving.models import Models, ServedModel
from nmt.serving.refusals import Refused
from nmt.serving.rendering import Form, Rendered, rendered
from nmt.serving.request_forms import _OPTIONS, MOST_PHRASES, RequestParser, TranslationRequest, fields_of
from nmt.translation import Line, TranslatedText, Translation

MODEL = ServedModel("de-en", "de", "en", "beam")
READER = RequestParser(Models((MODEL,)), ServeConfig(max_lines=4, max_line_chars=20, max_beam=6))
JSON, FORM = "application/json; charset=utf-8", "application/x-www-form-urlencoded"


def own(**tree: Any) -> TranslationRequest:
    return READER.own(json.dumps(tree).encode())


def translation(*texts: str, source: str = "", **facts: Any) -> Translation:
    attention = np.array([[0.75, 0.25], [0.0, 1.0]], dtype=np.float32)
    found = [TranslatedText(text, [text], -1.0, [-0.5, -0.5], attention, True) for text in texts]
    return Translation(0, source, ["x"], found, **facts)


def answered(request: TranslationRequest, *translations: Translation) -> list[dict[str, Any]]:
    """The translations of an answer in our own form."""
    lines = [rendered(one, request.form, 10**6, lambda: None) for one in translations]
    found: list[dict[str, Any]] = json.loads(answering.own(request, lines))["translations"]
    return found


def test_wishes_stand_beside_a_single_text_or_with_each_text() -> None:
    wish = Line("ein mann", prefix="a", include=("man",), max_length=5)
    assert own(text="ein mann", prefix="a", include=["man"], max_length=5).lines == (wish,)
    one = {"text": "ein mann", "prefix": "a", "include": ["man"], "max_length": 5}
    assert own(text=[one, "rot\r"]).lines == (wish, Line("rot"))


def test_the_options_that_a_request_may_set_are_those_that_declare_it() -> None:
    expected = {"search": str, "nbest": int, "beam": int, "lenpen": float, "length_penalty": LengthPenalty}
    assert expected | {"no_repeat_ngram_size": int} == _OPTIONS


def test_options_of_every_type_may_be_fields_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Example:
        count: int | None = option(None, help="", http=True)
        share: float | None = option(None, help="", flag="--its-share", http=True)
        switch: bool = option(False, help="", http=True)
        word: str | None = option(None, help="", http=True)
        kind: AlignmentKind | None = option(None, help="", http=True)
        unnamed: int = option(1, help="")

    options = request_forms.option_fields(Example)
    assert [*options] == ["count", "its_share", "switch", "word", "kind"]
    monkeypatch.setattr(request_forms, "_OPTIONS", options)
    monkeypatch.setattr(request_forms, "_KEYS", ("text", *options))
    request = own(text="rot", count=4, its_share=1, switch=True, word="a", kind="hard")
    assert request.options == {"count": 4, "its_share": 1.0, "switch": True, "word": "a", "kind": AlignmentKind.hard}
    for key, value, refusal in [
        ("switch", 1, "switch=1 is not true or false"),
        ("count", True, "count=true is not a whole number"),
        ("word", 1, "word=1 is not text"),
        ("kind", "firm", "kind='firm' must be one of none, hard, soft"),
        ("count", None, '"count" must not be null'),
        ("its_share", 10**400, "is not a number"),
    ]:
        with pytest.raises(Refused) as refused:
            own(text="rot", **{key: value})
        assert refusal in refused.value.sentence
    with pytest.raises(Refused, match='"its_share" must be a finite number'):
        READER.own(b'{"text": "rot", "its_share": 1e999}')


def test_options_of_the_search_become_those_of_the_translator() -> None:
    asked = own(text="rot", beam=4, lenpen=1, nbest=2, alignment="soft", scores=True)
    assert asked.options == {"beam": 4, "lenpen": 1.0, "nbest": 2}
    assert (asked.alignment, asked.scores, asked.single) == (AlignmentKind.soft, True, True)


def test_requests_in_the_same_words_are_translated_together_and_others_are_not() -> None:
    keys = [
        own(text="a", beam=4, lenpen=1).batch_key,
        own(text=["b", "c"], lenpen=1.0, beam=4).batch_key,
        own(text="a").batch_key,
    ]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("tree", "status", "sentence"),
    [
        ({"text": []}, 422, "no text"),
        ({"text": 3}, 422, 'text 1 must be an object with a string as "text"'),
        ({"text": {"text": "a", "txt": ""}}, 422, "has the unknown key 'txt' (did you mean 'text'?)"),
        ({"text": ["a"], "prefix": "b"}, 422, '"prefix" is for a single text'),
        ({"text": "a", "include": "b"}, 422, '"include" must be a list of strings'),
        ({"text": "a", "include": [" "]}, 422, "empty phrase"),
        ({"text": {"text": "a", "reference": "b"}}, 422, "the server does not score references"),
        ({"text": "a", "max_length": 1001}, 422, "max_length must be at most 1000"),
        ({"text": "a", "beam": 7}, 422, "from 1 to 6"),
        ({"text": "a", "nbest": 0}, 422, '"nbest" must be a whole number from 1 to 6'),
        ({"text": "a", "beam": True}, 422, "beam=true is not a whole number"),
        ({"text": "a", "lenpen": "1"}, 422, "lenpen='1' is not a number"),
        ({"text": "a", "scores": 1}, 422, '"scores" must be true or false'),
        ({"text": "a", "alignment": "firm"}, 422, "alignment must be one of none, hard, soft, not 'firm'"),
        ({"text": "a", "search": "sampling"}, 422, "search must be one of beam, greedy in a request, not 'sampling'"),
        ({"text": "a", "target": 1}, 422, '"target" must be a string'),
        ({"text": list("abcde")}, 413, "the request has 5 lines, more than the maximum of 4"),
        ({"text": "a" * 21}, 413, "more than 20 characters"),
        ({"text": "a", "prefix": "a" * 21}, 413, "more than 20 characters"),
        ({"text": "a", "prefix": "a" * 10, "include": ["b" * 6, "c" * 5]}, 413, "more than 20 characters"),
    ],
)
def test_what_our_own_form_does_not_allow_is_refused(tree: dict[str, Any], status: int, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        own(**tree)
    assert (refused.value.status, sentence in refused.value.sentence) == (status, True), refused.value.sentence


def test_more_phrases_than_a_search_can_watch_are_refused() -> None:
    reader = RequestParser(Models((MODEL,)), ServeConfig())
    body = {"text": "a", "prefix": "b", "include": ["c"] * (MOST_PHRASES // 2), "exclude": ["d"] * (MOST_PHRASES // 2)}
    assert len(reader.own(json.dumps(body).encode()).lines[0].include) == MOST_PHRASES // 2
    body["exclude"] = ["d"] * (MOST_PHRASES // 2 + 1)
    with pytest.raises(Refused, match=f"text 1 has {MOST_PHRASES + 1} phrases") as refused:
        reader.own(json.dumps(body).encode())
    assert refused.value.status == 413


def test_texts_of_several_lines_are_put_together_again() -> None:
    asked, auto = READER.libretranslate(
        fields_of(b'{"q":["a\\nb","c"],"source":"auto","target":"en","alternatives":1}', JSON)
    )
    assert auto and [line.text for line in asked.lines] == ["a", "b", "c"] and asked.counts == (2, 1)
    found = [Rendered(("A", "AA")), Rendered(("B",)), Rendered(("C", "CC"))]
    told = answering.libretranslate(asked, found, detected="de")
    assert told["translatedText"] == ["A\nB", "C"]
    assert told["alternatives"] == [["AA\nB"], ["CC"]]
    assert told["detectedLanguage"] == [{"language": "de", "confidence": 100.0}] * 2


def test_a_form_may_have_several_texts() -> None:
    asked, auto = READER.libretranslate(fields_of(b"q=a%0D%0Ab&source=de&target=en", FORM))
    assert not auto and asked.single and [line.text for line in asked.lines] == ["a", "b"]
    asked, _ = READER.libretranslate(fields_of(b'{"q": "a", "source": "de", "target": "en"}', FORM))
    assert asked.lines == (Line("a"),), "what curl sends without a header"
    asked, _ = READER.libretranslate(fields_of(b"q=a&q=b&source=de&target=en", FORM))
    assert not asked.single and asked.counts == (1, 1)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"source=de&target=en", "has no 'q'"),
        (b"q=%FF&source=de&target=en", "the form cannot be read"),
        (b"q=a&source=de&target=en&alternatives=x", "alternatives must be a whole number from 0 to 5"),
        (b"q=a&source=de&target=en&alternatives=6", "alternatives must be a whole number from 0 to 5"),
    ],
)
def test_what_a_form_lacks_is_told(body: bytes, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence) as refused:
        READER.libretranslate(fields_of(body, FORM))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ([], "must be a list of objects"),
        (["a"], "must be a list of objects"),
        ([{"tgt": "a"}], "needs a string as 'src'"),
        ([{"src": "a", "id": 0}, {"src": "b", "id": 1}], "the same 'id'"),
        ([{"src": "a", "id": 7}], "unknown model '7'"),
    ],
)
def test_what_the_form_of_opennmt_does_not_allow_is_refused(tree: object, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        READER.opennmt(json.dumps(tree).encode())


def test_an_answer_says_what_was_asked_for_and_what_is_unusual() -> None:
    (tree,) = answered(own(text="a"), translation("A", "B", parts=2, truncated=True))
    assert tree == {"text": "A", "parts": 2, "cut": True}
    (tree,) = answered(own(text="a", alignment="soft"), translation("A"))
    assert tree["hypotheses"][0]["attention"] == [[0.75, 0.25], [0.0, 1.0]]
    first, second = answered(own(text=["a", "b"], nbest=2, scores=True, alignment="hard"), *[translation("A", "B")] * 2)
    best, other = first["hypotheses"]
    facts = {"score": -1.0, "log_probability": -1.0, "token_scores": [-0.5, -0.5]}
    assert first == second and first["source_tokens"] == ["x"]
    assert best == {"text": "A", "tokens": ["A"], "alignment": [[0, 0]], **facts} and other["text"] == "B"


def test_a_large_matrix_of_weights_is_rendered_with_pauses_and_within_a_limit() -> None:
    weights = np.random.default_rng(1).random((400, 300)).astype(np.float32)
    line = Translation(0, "", [], [TranslatedText("a", [], 0.0, [], weights, True)] * 2)
    form, pauses = Form(own=True, nbest=2, alignment=AlignmentKind.soft), list[int]()
    whole = rendered(line, form, 10**7, lambda: pauses.append(1))
    for hypothesis in json.loads(whole.json)["hypotheses"]:
        np.testing.assert_allclose(hypothesis["attention"], weights, atol=1e-6)
    assert len(pauses) > 2 * weights.size // 2**14
    assert rendered(line, form, whole.size, lambda: None) == whole
    pauses.clear()
    with pytest.raises(Refused, match="the response has more than 100,000 bytes") as refused:
        rendered(line, form, 100_000, lambda: pauses.append(1))
    assert refused.value.status == 413 and len(pauses) < 4, "it ends at the limit"


@pytest.mark.parametrize("body", [{"text": ["a"] * 5, "source": "de"}, {"q": "\n" * 4, "source": "de", "target": "en"}])
def test_too_many_lines_are_refused_before_anything_is_made_of_them(
    body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Line", "line_of"):
        monkeypatch.delattr(request_forms, name)
    with pytest.raises(Refused, match="the request has 5 lines, more than the maximum of 4"):
        READER.libretranslate(body) if "q" in body else READER.own(json.dumps(body).encode())


def test_a_histogram_counts_up_to_each_bound_itself_included() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.add(value)
    counts = ['x_bucket{le="1.0"} 2', 'x_bucket{le="2.0"} 3', 'x_bucket{le="+Inf"} 4']
    assert histogram.lines("x") == [*counts, "x_sum 12.000000", "x_count 4"]


def test_labels_of_metrics_are_escaped() -> None:
    metrics = Metrics()
    metrics.lines['a"b\\'] += 1
    assert 'nmt_lines_total{model="a\\"b\\\\"} 1' in metrics.text()


def test_only_what_is_given_wins_over_the_search_of_a_model() -> None:
    assert ServedSearch().options() == {}
    assert ServedSearch(name="greedy", lenpen=0.0).options() == {"search": "greedy", "lenpen": 0.0}


def test_a_server_has_the_flags_of_beam_search_with_their_help() -> None:
    declared = {
        flag.name: (f"search.{flag.key}", f"{flag.help}; null: as in validation", flag.kind, flag.choices)
        for flag in flags_of(BeamConfig)
    }
    served = {flag.name: flag for flag in flags_of(ServeConfig) if flag.key.startswith("search.")}
    assert served.pop("--search").key == "search.name"
    assert {name: (one.key, one.help, one.kind, one.choices) for name, one in served.items()} == declared
    assert {flag.default for flag in served.values()} == {None}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"port": -1}, "port=-1"),
        ({"timeout": 0.0}, "timeout=0.0 must be"),
        ({"gather_ms": -1.0}, "gather_ms=-1.0 must be"),
        ({"max_lines": 10, "max_queue": 5}, "max_lines=10 is more than max_queue="),
        ({"workers": 0}, "workers=0 must be"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        ServeConfig(**options)


def test_every_option_has_a_flag_and_a_meaning() -> None:
    flags = flags_of(ServeConfig)
    assert len(flags) > 25 and all(flag.help for flag in flags)


def test_the_policy_of_a_page_allows_what_stands_in_it_alone() -> None:
    one, other = (policy_of(f"<style>a</style><script>{text}</script>") for text in ("b", "c"))
    assert one != other and one.startswith("default-src 'none'; script-src 'sha256-")

"""A server with a model of several languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt import Translator
from tests.serving.servers import Server, running
from tests.tiny_models import write_multilingual_model

CODES = ["deu_Latn", "eng_Latn", "fra_Latn"]


@pytest.fixture(scope="module")
def nllb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_multilingual_model(tmp_path_factory.mktemp("several") / "nllb")


@pytest.fixture(scope="module")
def several(nllb: Path) -> Iterator[Server]:
    with running("--path", nllb, "--workers", "1") as started:
        yield started


def test_every_form_translates_in_the_direction_of_the_request(several: Server, nllb: Path) -> None:
    translator = Translator.load(nllb, "cpu")
    expected = {
        names: translator.translate(["ein mann", "rot"], source_lang=names[0], target_lang=names[1])
        for names in (("eng_Latn", "deu_Latn"), ("fra_Latn", "deu_Latn"))
    }
    for (source, target), lines in expected.items():
        answer = several.post("/v1/translate", {"text": ["ein mann", "rot"], "source": source, "target": target}).json
        assert [line["text"] for line in answer["translations"]] == lines
        assert (answer["source"], answer["target"]) == (source, target)
        tree = {"q": ["ein mann", "rot"], "source": source, "target": target}
        assert several.post("/translate", tree).json == {"translatedText": lines}
        tree = {"from": source, "to": target, "source": "ein mann"}
        assert several.post("/api/translate", tree).json == {"translation": lines[0]}
    mixed = [{"text": "ein mann", "source_lang": source, "target_lang": target} for (source, target) in expected]
    answer = several.post("/v1/translate", {"text": mixed}).json
    assert [line["text"] for line in answer["translations"]] == [lines[0] for lines in expected.values()]


def test_the_languages_are_listed(several: Server) -> None:
    assert several.ask("GET", "/languages").json == [
        {"code": code, "name": name, "targets": [other for other in CODES if other != code]}
        for code, name in zip(CODES, ("German", "English", "French"))
    ]
    assert several.ask("GET", "/api/languages").json["languages"]["deu_Latn"] == CODES[1:]
    (model,) = several.ask("GET", "/v1/models").json["models"]
    assert (model["sources"], model["targets"], model["source"]) == (CODES, CODES, "")
    assert several.ask("GET", "/frontend/settings").json["language"]["source"]["code"] == "deu_Latn"


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (
            {},
            "text 1: give the source and the target language; the model translates between deu_Latn, eng_Latn, fra_Latn",
        ),
        ({"source": "deu_Latn", "target": "eng"}, "no language 'eng' (did you mean eng_Latn?)"),
        ({"source": "auto", "target": "eng_Latn"}, "does not detect"),
    ],
)
def test_a_request_without_a_direction_of_the_model_has_status_400(
    several: Server, tree: dict[str, str], sentence: str
) -> None:
    for answer in (
        several.post("/v1/translate", {"text": "rot", **tree}),
        several.post("/translate", {"q": "rot", "source": "", "target": "", **tree}),
    ):
        assert answer.status == 400 and (sentence in answer.json["error"] or not tree)

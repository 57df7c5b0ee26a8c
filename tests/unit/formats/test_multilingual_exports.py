"""M2M100, NLLB and mBART-50 out again: the same tensors, tokenizers and translations, in transformers and CTranslate2."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.errors import DataError, UsageError
from nmt.formats.exporting import ExportComparison, export_model
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.models.transformer.config import NormOrder, PositionKind
from nmt.storage.tensor_file import mapped_tensors
from tests.unit.formats.stored import PAIR, run_example, store

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
pytest.importorskip("babel", reason="babel is not installed: nmt-toolkit[test]")

from tests.unit.formats import multilingual as there  # noqa: E402

Folders = Callable[[str], tuple[Path, Path, Any]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a model, its import, and its tokenizer; each kind is made once."""
    made = dict[str, tuple[Path, Path, Any]]()

    def of(kind: str) -> tuple[Path, Path, Any]:
        if kind not in made:
            base = tmp_path_factory.mktemp(kind)
            (base / "there").mkdir()
            tokenizer = there.MAKERS[kind](base / "there")
            made[kind] = base / "there", imported(base / "there", base / "here"), tokenizer
        return made[kind]

    return of


def imported(folder: Path, output: Path, **options: Any) -> Path:
    (found,) = import_model(ImportConfig("huggingface", str(folder), str(output), **options))
    return found


def exported(model: Path, output: Path, kind: str = "huggingface", **options: Any) -> ExportComparison:
    options = {"sentences": 3, "longest": 64} | options
    return export_model(ExportConfig(path=str(model), format=kind, output=str(output), **options))


@pytest.mark.parametrize("kind", there.MAKERS)
def test_tensors_and_tokenizers_come_back(folders: Folders, kind: str, tmp_path: Path) -> None:
    """Except for rows that no token and no position has."""
    folder, here, tokenizer = folders(kind)
    found = exported(here, tmp_path / "out")
    assert found.difference < 2e-5 and found.equal == found.sentences
    before, after = (mapped_tensors(path / "model.safetensors") for path in (folder, tmp_path / "out"))
    assert before.keys() == after.keys()
    for name, array in before.items():
        unused = 2 if "embed_positions" in name else 0
        assert np.array_equal(array[unused : len(after[name])], after[name][unused:]), name
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", src_lang=there.SOURCES[kind])
    tokenizer.src_lang = there.SOURCES[kind]
    assert type(back) is type(tokenizer) and there.ids_there(back) == there.ids_there(tokenizer)
    for line in [*there.names(50), "ﬁne  ½ Ｆｕｌｌ", "♠ unknown ♣♣", ""]:
        assert back(line).input_ids == tokenizer(line).input_ids
    first, again = (
        mapped_tensors(path / "model.safetensors") for path in (here, imported(tmp_path / "out", tmp_path / "again"))
    )
    assert first.keys() == again.keys() and all(np.array_equal(first[name], again[name]) for name in first)
    assert load_model(tmp_path / "again", "cpu").pair.digest() == load_model(here, "cpu").pair.digest()


@pytest.mark.parametrize(
    ("early", "stop"), [({"early_stopping": "never"}, "bound"), ({"early_stopping": True}, "first"), ({}, "estimate")]
)
def test_a_default_direction_and_search_come_back(
    early: dict[str, Any],
    stop: str,
    folders: Folders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, _, _ = folders("nllb")
    path = folder / "generation_config.json"
    before = path.read_text()
    path.write_text(json.dumps({"max_length": 50, "num_beams": 3, "length_penalty": 0.5, **early}))
    here = imported(folder, tmp_path / "here", source_lang="eng_Latn", target_lang="fra_Latn")
    path.write_text(before)
    exported(here, tmp_path / "out")
    loaded, again = (load_model(path, "cpu") for path in (here, imported(tmp_path / "out", tmp_path / "again")))
    assert (again.pair.source_lang, again.pair.target_lang) == ("eng_Latn", "fra_Latn")
    assert again.tree["search"] == loaded.tree["search"] and loaded.tree["search"]["stop"] == stop
    run_example(tmp_path / "out", monkeypatch)
    assert "fra_Latn" not in capsys.readouterr().out


def test_a_default_source_alone_comes_back(folders: Folders, tmp_path: Path) -> None:
    here = imported(folders("nllb")[0], tmp_path / "here", source_lang="eng_Latn")
    exported(here, tmp_path / "out")
    again = load_model(imported(tmp_path / "out", tmp_path / "again"), "cpu").pair
    assert (again.source_lang, again.target_lang) == ("eng_Latn", "")
    assert "# Translation between 202 languages" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["m2m100", "mbart"])
def test_ctranslate2_translates_with_the_language_as_prefix(
    folders: Folders, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    found = exported(folders(kind)[1], tmp_path / "out", "ctranslate2", sentences=20, longest=512)
    assert found.difference < 2e-5 and found.equal == found.sentences == 20
    if kind == "m2m100":  # the other has 64 positions
        run_example(tmp_path / "out", monkeypatch)


def test_fewer_languages_come_back(folders: Folders, tmp_path: Path) -> None:
    """NllbTokenizer reads those of a trimmed NLLB or M2M100; the unigram tokenizer of mBART-50 has fixed ones."""
    for kind, languages in (("nllb", ["eng_Latn", "fra_Latn"]), ("m2m100", ["en", "fr"])):
        fewer = imported(folders(kind)[0], tmp_path / kind, languages=languages)
        exported(fewer, tmp_path / f"{kind} out")
        again = load_model(imported(tmp_path / f"{kind} out", tmp_path / f"{kind} again"), "cpu").pair
        assert [*again.language_tokens.tokens] == languages
        assert again.digest() == load_model(fewer, "cpu").pair.digest()
    fewer = imported(folders("mbart")[0], tmp_path / "other", languages=["en_XX", "de_DE"])
    with pytest.raises(UsageError, match="unigram tokenizer has the 52 languages of mBART-50, the model has 2"):
        exported(fewer, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("kind", ["ctranslate2", "safetensors"])
def test_languages_come_back_from_other_formats(kind: str, tmp_path: Path) -> None:
    if kind == "ctranslate2":
        pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    languages = LanguageTokens({"en": "p1", "de": "p2"}, SourceToken.source, target=True)
    run = store(tmp_path / "run", replace(PAIR, source_lang="", target_lang="", languages=languages))
    exported(run, tmp_path / "there", kind)

    def back(name: str, **options: str) -> tuple[Any, ...]:
        (found,) = import_model(ImportConfig(kind, str(tmp_path / "there"), str(tmp_path / name), **options))
        pair = load_model(found, "cpu").pair
        return pair.languages, pair.source_lang, pair.target_lang

    assert back("one") == (languages, "", "")
    assert back("two", source_lang="p2", target_lang="en") == (languages, "de", "en")
    with pytest.raises(UsageError, match="the model has no language 'fr'; it has en, de"):
        back("three", source_lang="fr")


def test_languages_of_a_model_of_ours_come_back_from_marian(tmp_path: Path) -> None:
    languages = LanguageTokens({"en": "p1", "de": "p2"}, SourceToken.target, target=True)
    run = store(tmp_path / "run", replace(PAIR, languages=languages))
    exported(run, tmp_path / "there")
    assert load_model(imported(tmp_path / "there", tmp_path / "again"), "cpu").pair.languages == languages
    path = tmp_path / "there" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"nmt_languages": {"tokens": []}}))
    (tmp_path / "there" / "manifest.json").unlink()
    with pytest.raises(DataError, match="config.json: nmt_languages: languages must have the keys"):
        imported(tmp_path / "there", tmp_path / "damaged")


LIKE_M2M100: dict[str, Any] = {"norm": NormOrder.pre, "attention_bias": True}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "M2M100 and NLLB have tensor2tensor's sinusoids from position 2 on, but the model has others"),
        ({"positions": PositionKind.learned}, "mBART-50 have a norm of the embeddings, but the model has none"),
        ({"positions": PositionKind.rotary}, "mBART-50 have learned positions, but the model has others"),
    ],
)
def test_what_multilingual_models_lack_is_said(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    languages = LanguageTokens({"en": "p1", "de": "p2"}, SourceToken.source, target=True)
    run = store(tmp_path / "run", replace(PAIR, languages=languages), **LIKE_M2M100, **options)
    with pytest.raises(UsageError, match=says):
        exported(run, tmp_path / "there")

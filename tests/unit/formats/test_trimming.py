"""Models with a part of their vocabulary: the same cuts of the text, the same scores, and no text that becomes unknown."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.exchange import ImportConfig
from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.sentencepiece import (
    BpeConfig,
    SentencePieceBuilder,
    SentencePieceConfig,
    UnigramConfig,
)
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.vocabulary import EOS, SPECIALS, UNK
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.formats import PortableModel
from nmt.formats.importing import import_model
from nmt.formats.trimming import trim
from nmt.models import models
from nmt.models.loading import load_model
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.own_weights import describe
from nmt.models.transformer.weights import arrays_of
from tests.unit.formats.stored import PAIR

ENGLISH = ["the red house stands near the old tree", "a car was parked near the house", "the tree is old and red"]
GERMAN = ["das rote Haus steht bei dem alten Baum", "ein Auto parkte bei dem Haus", "der Baum ist alt und rot"]
OTHERS = ["красный дом стоит у старого дерева", "une maison rouge près du vieil arbre", "το κόκκινο σπίτι"]
TAGS = {"de": "<2de>", "ru": "<2ru>", "fr": "<2fr>"}


def learned(config: type[SentencePieceConfig], size: int = 220, **options: Any) -> Tokenizer:
    options = {"vocab_size": size, "hard_vocab_limit": False, **options}
    return SentencePieceBuilder(config(**options)).train(3 * [*ENGLISH, *GERMAN, *OTHERS], seed=1)


def listed(tokenizer: Tokenizer, pieces: list[str], **options: Any) -> SentencePieceList:
    model = tokenizer.model_bytes()  # type: ignore[attr-defined]
    return SentencePieceList(SentencePieceListConfig(**options), model, pieces)


def portable(pair: LanguagePair, **options: Any) -> PortableModel:
    torch.manual_seed(2)
    config = TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2, **options)
    state = {name: tensor.numpy() for name, tensor in models.build(config, pair.sizes).state_dict().items()}
    return PortableModel(describe(config, pair.sizes, state, "here"), pair)


def options(folder: Path, lines: list[str], *languages: str, **others: Any) -> ImportConfig:
    (folder / "text").write_text("\n".join(lines) + "\n")
    return ImportConfig(languages=[*languages], vocabulary_text=[str(folder / "text")], **others)


def pieces_of(tokenizer: Tokenizer, lines: list[str]) -> list[list[str]]:
    return [tokenizer.pieces(ids.tolist()) for ids in tokenizer.encode(lines)]


@pytest.mark.parametrize("config", [BpeConfig, UnigramConfig])
@pytest.mark.parametrize("of_list", [False, True])
def test_the_text_is_cut_as_before_and_other_text_loses_no_character(
    config: type[SentencePieceConfig], of_list: bool, tmp_path: Path
) -> None:
    before = learned(config, user_defined_symbols=[*TAGS.values()])
    if of_list:
        before = listed(before, [*reversed(before.vocabulary.pieces[len(SPECIALS) :])])
    pair = LanguagePair("en", "de", before, before, True, LanguageTokens(TAGS))
    (model,), _ = trim([portable(pair)], options(tmp_path, [*ENGLISH, *GERMAN], "de", "fr"))
    after = model.pair.source
    assert model.pair.one_tokenizer and len(after.vocabulary) < len(before.vocabulary)
    lines = [*ENGLISH, *GERMAN]
    assert pieces_of(after, lines) == pieces_of(before, lines)
    for line, were, are in zip(OTHERS, before.encode(OTHERS), after.encode(OTHERS), strict=True):
        assert after.decode(are.tolist()) == line and len(are) >= len(were) and UNK not in are
    assert {*TAGS.values()} & {*after.vocabulary.pieces} == {"<2de>", "<2fr>"}
    assert [*model.pair.languages.tokens] == ["de", "fr"]  # type: ignore[union-attr]
    model.pair.save(tmp_path / "pair")
    assert LanguagePair.load(tmp_path / "pair").source.vocabulary == after.vocabulary


@pytest.mark.parametrize("shared", [True, False])
def test_two_tokenizers_lose_the_rows_that_neither_needs(shared: bool, tmp_path: Path) -> None:
    """As in OPUS-MT: a joint list or two, and language tokens that only the list has."""
    source, target = learned(BpeConfig, 150), learned(BpeConfig, 180)
    sides = [dict.fromkeys(side.vocabulary.pieces[len(SPECIALS) :]) for side in (source, target)]
    joint = [*dict.fromkeys([">>de<<", ">>ru<<", *sides[0], *sides[1]])]
    lists = [joint, joint] if shared else [[">>de<<", ">>ru<<", *sides[0]], [*sides[1]]]
    before = [listed(side, own, language_tokens=True) for side, own in zip((source, target), lists)]
    pair = LanguagePair("en", "de", before[0], before[1], shared)
    old = portable(pair, share_all_embeddings=shared or False)
    (new,), _ = trim([old], options(tmp_path, [*ENGLISH, *GERMAN], "en", "de"))
    after = [new.pair.source, new.pair.target]
    assert ">>de<<" in after[0].vocabulary.pieces and ">>ru<<" not in after[0].vocabulary.pieces
    assert (new.weights.source.embedding is new.weights.output.weight) is shared
    stacks = (old.weights.source, new.weights.source), (old.weights.target, new.weights.target)
    for was, now, (large, small) in zip(before, after, stacks):
        assert pieces_of(now, [">>de<< " + line for line in ENGLISH]) == pieces_of(
            was, [">>de<< " + line for line in ENGLISH]
        )
        assert pieces_of(now, GERMAN) == pieces_of(was, GERMAN)
        assert len(SPECIALS) < len(small.embedding) == len(now.vocabulary) < len(was.vocabulary)
        rows = [*range(len(SPECIALS)), *map(was.vocabulary.id, now.vocabulary.pieces[len(SPECIALS) :])]
        np.testing.assert_array_equal(small.embedding, large.embedding[rows])


def test_rare_tokens_of_the_text_are_cut_and_the_report_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = learned(BpeConfig)
    old = portable(LanguagePair("en", "de", before, before, True))
    caplog.set_level(logging.INFO)
    lines = [*ENGLISH, *ENGLISH, "красный"]
    (new,), facts = trim([old], options(tmp_path, lines, vocabulary_min_count=2))
    after = new.pair.source
    assert pieces_of(after, ENGLISH) == pieces_of(before, ENGLISH)
    rare = len(before.encode(["красный"])[0])
    counted = sum(map(len, before.encode(lines)))
    lost = rare - sum(piece in after.vocabulary.pieces for piece in pieces_of(before, ["красный"])[0])
    assert lost > 0 and after.decode(after.encode(["красный"])[0].tolist()) == "красный"
    parameters = [sum({id(a): a.size for _, a in arrays_of(model.weights)}.values()) for model in (old, new)]
    assert facts["trimmed"] == {
        "vocabulary": [len(before.vocabulary), len(after.vocabulary)],
        "parameters": parameters,
        "text_tokens": [counted, counted - lost],
    }
    assert f"text tokens: kept {counted - lost} of {counted} ({100 * (1 - lost / counted):.2f}%)" in caplog.text
    assert parameters[0] - parameters[1] == 8 * (len(before.vocabulary) - len(after.vocabulary))


def test_without_text_only_other_languages_lose_their_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = learned(BpeConfig, user_defined_symbols=[*TAGS.values()])
    pair = LanguagePair("", "", before, before, True, LanguageTokens(TAGS, trained=("de-fr", "de-ru")))
    (model,), _ = trim([portable(pair)], ImportConfig(languages=["<2de>", "fr"]))
    assert {*before.vocabulary.pieces} - {*model.pair.source.vocabulary.pieces} == {"<2ru>"}
    assert model.pair.languages is not None and model.pair.languages.trained == ("de-fr",)
    assert "--vocabulary-text FILES" in caplog.text


def test_characters_that_only_longer_tokens_contain_stay_and_bytes_spell_the_others(tmp_path: Path) -> None:
    model = learned(BpeConfig, 500, byte_fallback=True)
    pieces = [piece for piece in model.vocabulary.pieces[len(SPECIALS) :] if piece != "κ"]
    before = listed(model, pieces)
    (trimmed,), _ = trim([portable(LanguagePair("en", "de", before, before, True))], options(tmp_path, ENGLISH))
    after = trimmed.pair.source
    assert (
        [piece for piece in pieces if "κ" in piece]
        == [piece for piece in after.vocabulary.pieces if "κ" in piece]
        != []
    )
    for line in ("語", *OTHERS):
        assert after.decode(after.encode([line])[0].tolist()) == line


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nllb", "m2m100", "mbart"])
def test_an_imported_model_gives_the_kept_tokens_the_same_scores(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
    babel = pytest.importorskip("babel", reason="babel is not installed: nmt-toolkit[test]")
    from tests.unit.formats import multilingual as there

    there.MAKERS[kind](tmp_path)
    source, target = there.SOURCES[kind], there.TARGETS[kind]
    paths = [tmp_path / f"text.{code}.gz" for code in ("en", "de")]
    lines = [sorted(babel.Locale(path.name[5:7]).territories.values()) for path in paths]
    for path, some in zip(paths, lines):
        path.write_bytes(gzip.compress("\n".join(some).encode()))
    given = {"path": str(tmp_path), "source_lang": source, "target_lang": target}
    text = {"languages": [target, source], "vocabulary_text": [*map(str, paths)]}
    with pytest.raises(UsageError, match=f"would drop the token of {source}"):
        import_model(ImportConfig(**given, output=str(tmp_path / "never"), languages=[target]))
    assert not (tmp_path / "never").exists()
    folders = [
        import_model(ImportConfig(**given, **some, output=str(tmp_path / name)))[0]
        for name, some in (("a", {}), ("b", text))
    ]
    large, small = (load_model(folder, "cpu") for folder in folders)
    facts = json.loads((folders[1] / "manifest.json").read_text())["made"]["trimmed"]
    assert facts["languages"][1] == 2 and facts["vocabulary"][1] < 0.85 * facts["vocabulary"][0]
    rows = [*range(4), *map(large.pair.source.vocabulary.id, small.pair.source.vocabulary.pieces[4:])]
    batches = []
    for loaded in (large, small):
        direction = loaded.pair.direction(source, target)
        sides = (direction.source, lines[0][:20]), (direction.target, lines[1][:20])
        batches.append(
            collate(
                *([np.array([*first, *ids, EOS]) for ids in loaded.pair.source.encode(some)] for first, some in sides)
            )
        )
    assert torch.equal(batches[0].source, torch.tensor(rows)[batches[1].source])
    with torch.inference_mode():
        logits = [
            loaded.module.output.logits(loaded.module(batch).hidden) for loaded, batch in zip((large, small), batches)
        ]
    torch.testing.assert_close(logits[1], logits[0][:, rows])
    for line in there.names(300):
        before, after = (loaded.pair.source for loaded in (large, small))
        were, are = before.encode([line])[0].tolist(), after.encode([line])[0].tolist()
        assert after.decode(are) == before.decode(were) or UNK in were


@pytest.mark.parametrize(
    ("pair", "given", "kind", "message"),
    [
        ("several", {"languages": ["de", "rus"]}, UsageError, "no language 'rus' .did you mean ru"),
        ("forced", {"languages": ["de"]}, UsageError, "--languages de is a single language"),
        ("several", {"languages": ["fr", "ru"]}, UsageError, "--languages fr,ru would drop the token of de, .*target"),
        ("one", {"languages": ["en", "de"]}, UsageError, "--languages en,de needs a model of several languages"),
        ("words", {"vocabulary_text": ["good"]}, UsageError, "need subwords of sentencepiece, .*tokenizer=words"),
        ("one", {"vocabulary_text": ["good", "gone"]}, MissingInputError, "cannot read gone: it is missing"),
        ("one", {"vocabulary_text": ["good", "blank.gz"]}, DataError, "blank.gz has no text"),
        ("one", {"vocabulary_text": ["bad"]}, DataError, "bad:1:1: byte 0xff is not UTF-8"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(
    pair: str,
    given: dict[str, Any],
    kind: type[NMTError],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good").write_text("the house\n")
    Path("bad").write_bytes(b"a\xff\n")
    Path("blank.gz").write_bytes(gzip.compress(b"\n \n"))
    tokenizer = learned(BpeConfig, 100, user_defined_symbols=[*TAGS.values()])
    plain = learned(BpeConfig, 100)
    pairs = {
        "several": LanguagePair("en", "de", tokenizer, tokenizer, True, LanguageTokens(TAGS)),
        "forced": LanguagePair("", "de", tokenizer, tokenizer, True, LanguageTokens(TAGS, SourceToken.source, True)),
        "one": LanguagePair("en", "de", plain, plain, True),
        "words": PAIR,
    }
    with pytest.raises(kind, match=message) as error:
        trim([portable(pairs[pair])], ImportConfig(**given))
    assert "\n" not in str(error.value)


def test_a_minimum_count_needs_text() -> None:
    with pytest.raises(UsageError, match="--vocabulary-min-count counts the tokens of --vocabulary-text"):
        ImportConfig(vocabulary_min_count=2)


def test_a_corpus_has_no_vocabulary_to_trim(tmp_path: Path) -> None:
    for name in ("dict.en.txt", "dict.de.txt", "train.en-de.en.bin", "train.en-de.en.idx"):
        (tmp_path / name).write_text("")
    given = ImportConfig("fairseq", str(tmp_path), str(tmp_path / "never"), "en", "de", languages=["en"])
    with pytest.raises(UsageError, match="are for models, but .* is a corpus; omit them"):
        import_model(given)
    assert not (tmp_path / "never").exists()

"""A pair of tokenizers as it is stored beside corpora and models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.config.choices import PieceMarks
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.piece_lists import CharConfig, CharTokenizer, WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece import BpeConfig, Normalization
from nmt.errors import DataError, MissingInputError

TEXT = ["the house is old", "an old house", "the tree is green"]


def words(lines: list[str] = TEXT) -> Tokenizer:
    return tokenizers.build(WordsConfig(min_count=1)).train(lines, 1)


def separate() -> LanguagePair:
    characters = tokenizers.build(CharConfig()).train(TEXT, 1)
    return LanguagePair("en", "de", words(), characters, shared=False)


def joint() -> LanguagePair:
    tokenizer = tokenizers.build(BpeConfig(vocab_size=40, normalization=Normalization.identity)).train(TEXT, 1)
    return LanguagePair("en", "de", tokenizer, tokenizer, shared=True)


def one_list() -> LanguagePair:
    """Two ways of cutting, and one list of pieces."""
    pieces = ["a", "house", "n", "o"]
    return LanguagePair(
        "en", "de", WordTokenizer(WordsConfig(), pieces), CharTokenizer(CharConfig(), pieces), shared=True
    )


@pytest.mark.parametrize("make", [separate, joint, one_list])
def test_a_saved_pair_loads_as_it_was(make: type[LanguagePair], tmp_path: Path) -> None:
    pair = make()
    pair.save(tmp_path / "tokenizer")
    loaded = LanguagePair.load(tmp_path / "tokenizer")
    assert (loaded.source_lang, loaded.target_lang, loaded.shared) == ("en", "de", pair.shared)
    assert loaded.source.vocabulary == pair.source.vocabulary
    assert loaded.target.vocabulary == pair.target.vocabulary
    assert (loaded.source.config, loaded.target.config) == (pair.source.config, pair.target.config)
    assert loaded.digest() == pair.digest()


def test_sides_that_are_one_stay_one(tmp_path: Path) -> None:
    joint().save(tmp_path)
    loaded = LanguagePair.load(tmp_path)
    assert loaded.source is loaded.target
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joint.model", "pair.json"]


def test_the_digest_tells_vocabularies_and_sides_apart() -> None:
    small, large = words(TEXT[:1]), words()
    digests = {
        LanguagePair("en", "de", source, target, shared=False).digest()
        for source in (small, large)
        for target in (small, large)
    }
    assert len(digests) == 4


def test_the_digest_does_not_depend_on_the_languages_names() -> None:
    assert (
        LanguagePair("a", "b", words(), words(), False).digest()
        == LanguagePair("c", "d", words(), words(), False).digest()
    )


def test_every_flipped_byte_of_a_tokenizer_file_is_noticed(tmp_path: Path) -> None:
    joint().save(tmp_path)
    model = (tmp_path / "joint.model").read_bytes()
    for position in range(0, len(model), 997):
        damaged = bytearray(model)
        damaged[position] ^= 0x55
        (tmp_path / "joint.model").write_bytes(damaged)
        with pytest.raises(DataError, match=r"joint\.model is damaged"):
            LanguagePair.load(tmp_path)


def test_a_missing_tokenizer_file_is_named(tmp_path: Path) -> None:
    separate().save(tmp_path)
    (tmp_path / "target.json").unlink()
    with pytest.raises(DataError, match=r"target\.json is missing"):
        LanguagePair.load(tmp_path)


def test_a_folder_without_a_pair_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="holds no tokenizer"):
        LanguagePair.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 2}, "format 2; this version reads format 1"),
        ({"source": None}, "does not describe the tokenizer 'source'"),
        (
            {"source": {"files": {}, "tokenizer": {"name": "words", "colour": 1}}},
            "does not know the option tokenizer.colour",
        ),
        ({"source": {"files": {"../pair.json": "0"}}}, "damaged"),
    ],
)
def test_a_bad_description_is_refused(change: dict[str, object], complaint: str, tmp_path: Path) -> None:
    separate().save(tmp_path)
    path = tmp_path / "pair.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    with pytest.raises(DataError, match=complaint):
        LanguagePair.load(tmp_path)


def test_a_vocabulary_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    separate().save(tmp_path)
    path = tmp_path / "pair.json"
    tree = json.loads(path.read_text(encoding="utf-8"))
    tree["source"]["vocabulary"] = "0" * 64
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(DataError, match="vocabulary of 'source' differs from the stored one"):
        LanguagePair.load(tmp_path)


@pytest.mark.parametrize("inside", [".", "tokenizer"])
def test_a_pair_is_found_in_a_tokenizer_corpus_or_run_folder(inside: str, tmp_path: Path) -> None:
    assert find_pair(tmp_path) is None
    joint().save(tmp_path / inside)
    assert find_pair(tmp_path) == tmp_path / inside


def test_how_text_was_cut_before_is_stored_with_each_side(tmp_path: Path) -> None:
    cut = LanguagePair("en", "de", words(), words().joining(PieceMarks.subword_nmt), shared=False)
    cut.save(tmp_path)
    loaded = LanguagePair.load(tmp_path)
    assert (loaded.source.marks, loaded.target.marks) == (PieceMarks.none, PieceMarks.subword_nmt)
    assert loaded.digest() == cut.digest()


def test_a_pair_that_says_nothing_of_marks_joins_nothing(tmp_path: Path) -> None:
    separate().save(tmp_path)
    assert "marks" not in (tmp_path / "pair.json").read_text(encoding="utf-8")
    assert LanguagePair.load(tmp_path).target.marks is PieceMarks.none


def test_unknown_marks_are_refused(tmp_path: Path) -> None:
    cut = words().joining(PieceMarks.sentencepiece)
    LanguagePair("en", "de", cut, cut, shared=True).save(tmp_path)
    path = tmp_path / "pair.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"sentencepiece"', '"other"'), encoding="utf-8")
    with pytest.raises(DataError, match="marks='other' must be one of none, subword_nmt, sentencepiece"):
        LanguagePair.load(tmp_path)


def test_one_vocabulary_may_have_two_tokenizers(tmp_path: Path) -> None:
    one_list().save(tmp_path)
    loaded = LanguagePair.load(tmp_path)
    assert loaded.shared and not loaded.one_tokenizer
    assert loaded.source.encode(["a house"])[0].tolist() == [4, 5]
    assert loaded.target.encode(["a no"])[0].tolist() == [4, 1, 6, 7]


def test_one_tokenizer_is_stored_once(tmp_path: Path) -> None:
    joint().save(tmp_path)
    loaded = LanguagePair.load(tmp_path)
    assert loaded.one_tokenizer and loaded.source is loaded.target
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joint.model", "pair.json"]


def test_two_vocabularies_are_not_called_one(tmp_path: Path) -> None:
    assert not separate().one_tokenizer
    separate().save(tmp_path)
    path = tmp_path / "pair.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"shared": false', '"shared": true'), encoding="utf-8")
    with pytest.raises(DataError, match="shared=true, but the two vocabularies differ"):
        LanguagePair.load(tmp_path)

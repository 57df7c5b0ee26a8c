"""Where the tokenizers of a corpus come from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import CharConfig, CharTokenizer, WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, UsageError
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text, write


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


def test_separate_vocabularies_know_their_own_side_only(text: Text) -> None:
    corpus, report = text.make()
    assert set(corpus.pair.source.vocabulary.pieces[4:]) == set(" ".join(SOURCE).split())
    assert set(corpus.pair.target.vocabulary.pieces[4:]) == set(" ".join(TARGET).split())
    assert (report.source_entries, report.target_entries, report.shared) == (12, 11, False)


def test_a_joint_vocabulary_knows_both_sides(text: Text) -> None:
    corpus, report = text.make(joined_dictionary=True)
    assert set(corpus.pair.source.vocabulary.pieces[4:]) == set(" ".join(SOURCE + TARGET).split())
    assert corpus.pair.source is corpus.pair.target and report.shared


def test_pieces_are_learned_from_the_training_split_only(text: Text) -> None:
    text.write("valid", ["zebra"], ["Zebra"])
    corpus, report = text.make(validpref=f"{text.folder}/valid")
    assert "zebra" not in corpus.pair.source.vocabulary.pieces
    assert report.splits[1].source.unknown == 1


@pytest.mark.parametrize("joined", [False, True])
def test_given_lists_of_pieces_are_taken_as_they_are(joined: bool, text: Text) -> None:
    write(text.folder / "dict.en", ["the", "house", "is"])
    write(text.folder / "dict.de", ["ist", "Haus"])
    given = {"srcdict": f"{text.folder}/dict.en"} | ({} if joined else {"tgtdict": f"{text.folder}/dict.de"})
    corpus, _ = text.make(joined_dictionary=joined, **given)
    assert corpus.pair.source.vocabulary.pieces[4:] == ("the", "house", "is")
    assert corpus.pair.target.vocabulary.pieces[4:] == (("the", "house", "is") if joined else ("ist", "Haus"))


def test_a_dictionary_of_fairseq_is_a_list_of_words_and_the_log_says_so(
    text: Text, caplog: pytest.LogCaptureFixture
) -> None:
    write(text.folder / "dict.en.txt", ["the 3", "house 2"])
    with caplog.at_level(logging.INFO, "nmt"):
        corpus, _ = text.make(srcdict=f"{text.folder}/dict.en.txt")
    assert corpus.pair.source.vocabulary.pieces[4:] == ("the", "house")
    assert "dict.en.txt is a fairseq dictionary: its tokens keep their order" in caplog.text


def test_a_dictionary_of_fairseq_is_named_where_a_model_is_needed(text: Text) -> None:
    write(text.folder / "dict.en.txt", ["the 3", "house 2"])
    with pytest.raises(
        DataError, match=r"dict.en.txt is a fairseq dictionary .* give the sentencepiece model, or use tokenizer=words"
    ):
        text.make(tokenizer=BpeConfig(), srcdict=f"{text.folder}/dict.en.txt")


def test_a_corpus_folder_of_fairseq_is_named_where_a_vocabulary_is_needed(text: Text) -> None:
    write(text.folder / "dict.en.txt", ["the 3", "house 2"])
    with pytest.raises(DataError, match=r"is a corpus folder of fairseq \(dict.en.txt\)"):
        text.make(srcdict=str(text.folder))


def test_one_side_may_be_given_and_the_other_learned(text: Text) -> None:
    write(text.folder / "dict.de", ["ist", "Haus"])
    corpus, _ = text.make(tgtdict=f"{text.folder}/dict.de")
    assert len(corpus.pair.source.vocabulary) == 12 and len(corpus.pair.target.vocabulary) == 6


def test_a_given_sentencepiece_model_is_used(text: Text) -> None:
    known, _ = text.make(tokenizer=BpeConfig(vocab_size=50), joined_dictionary=True)
    model = str(known.folder / "tokenizer" / "joint.model")
    corpus, _ = text.make(tokenizer=BpeConfig(), srcdict=model, joined_dictionary=True, destdir=f"{text.folder}/other")
    assert corpus.pair.digest() == known.pair.digest()


@pytest.mark.parametrize("joined", [False, True])
def test_a_corpus_folder_gives_both_sides_as_it_has_them(joined: bool, text: Text) -> None:
    known, _ = text.make(joined_dictionary=joined)
    folder = str(known.folder)
    corpus, _ = text.make(srcdict=folder, tgtdict=folder, tokenizer=CharConfig(), destdir=f"{text.folder}/other")
    assert corpus.pair.digest() == known.pair.digest()
    assert corpus.pair.shared is joined


def one_list(folder: Path) -> LanguagePair:
    """One vocabulary, cut in one way for English and in another for German, as Marian's models have it."""
    pieces = ["the", "house", "red", "h", "o", "R"]
    pair = LanguagePair(
        "en", "de", WordTokenizer(WordsConfig(), pieces), CharTokenizer(CharConfig(), pieces), shared=True
    )
    pair.save(folder)
    return pair


@pytest.mark.parametrize(
    "options",
    [
        {"srcdict": "known", "tgtdict": "known"},
        {"srcdict": "known", "tgtdict": "known", "joined_dictionary": True},
        {"srcdict": "known", "joined_dictionary": True},
        {"tgtdict": "known", "joined_dictionary": True},
        {"srcdict": "known", "tgtdict": "known", "source_lang": "de", "target_lang": "en"},
        {"srcdict": "known", "only_source": True},
    ],
    ids=repr,
)
def test_each_side_keeps_its_tokenizer_where_they_share_a_vocabulary(
    options: dict[str, Any], text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(text.folder)
    known = one_list(Path("known"))
    corpus, report = text.make(**options)
    assert corpus.pair.shared and not corpus.pair.one_tokenizer and report.shared
    assert corpus.pair.digest() == known.digest()
    kinds = {corpus.pair.source_lang: corpus.pair.source.config, corpus.pair.target_lang: corpus.pair.target.config}
    assert kinds == {"en": WordsConfig(), "de": CharConfig()}


def test_a_source_alone_keeps_the_joint_tokenizer_joint(text: Text) -> None:
    known, _ = text.make(joined_dictionary=True)
    corpus, _ = text.make(only_source=True, srcdict=str(known.folder), destdir=f"{text.folder}/other")
    assert corpus.pair.one_tokenizer and corpus.pair.digest() == known.pair.digest()


def test_a_corpus_of_the_other_direction_gives_each_side_by_its_language(text: Text) -> None:
    known, _ = text.make()
    folder = str(known.folder)
    back, _ = text.make(
        source_lang="de", target_lang="en", srcdict=folder, tgtdict=folder, destdir=f"{text.folder}/back"
    )
    assert back.pair.source.vocabulary == known.pair.target.vocabulary
    assert back.pair.target.vocabulary == known.pair.source.vocabulary


def test_a_source_alone_of_the_other_direction_gets_the_pair_turned_round(text: Text) -> None:
    known, _ = text.make()
    corpus, _ = text.make(
        source_lang="de", target_lang="", only_source=True, srcdict=str(known.folder), destdir=f"{text.folder}/back"
    )
    assert (corpus.pair.source_lang, corpus.pair.target_lang) == ("de", "en")
    assert corpus.pair.source.vocabulary == known.pair.target.vocabulary
    assert corpus.pair.target.vocabulary == known.pair.source.vocabulary


@pytest.mark.parametrize("other", ["corpus/", "../{name}/corpus", "corpus/tokenizer", "link"])
def test_a_folder_named_in_two_ways_is_one_folder(other: str, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    known, _ = text.make(joined_dictionary=True)
    monkeypatch.chdir(text.folder)
    Path("link").symlink_to("corpus")
    named = {"srcdict": "corpus", "tgtdict": other.format(name=text.folder.name)}
    for number, joined in enumerate((False, True)):
        corpus, _ = text.make(**named, joined_dictionary=joined, destdir=f"other{number}")
        assert corpus.pair.shared and corpus.pair.digest() == known.pair.digest()


@pytest.mark.parametrize("sides", [("srcdict",), ("tgtdict",), ("srcdict", "tgtdict")])
def test_two_vocabularies_do_not_become_a_joint_one(sides: tuple[str, ...], text: Text) -> None:
    known, _ = text.make()
    with pytest.raises(UsageError, match="corpus holds two vocabularies, but --joined-dictionary needs one"):
        text.make(joined_dictionary=True, destdir=f"{text.folder}/other", **dict.fromkeys(sides, str(known.folder)))

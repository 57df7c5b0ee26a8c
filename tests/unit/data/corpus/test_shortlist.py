"""Shortlists: learned from pairs, stored, and refused where they do not belong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.shortlist import Shortlist, learn
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import SPECIALS
from nmt.errors import DataError, MissingInputError, UsageError
from tests.tiny_models import DICTIONARY, WORDS, tiny_pair, write_tiny_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus.open(write_tiny_corpus(tmp_path_factory.mktemp("text")))


def test_the_first_piece_of_each_word_is_its_translation(corpus: Corpus) -> None:
    shortlist = learn(corpus.split("train"), corpus.pair, per_piece=1, frequent=0, max_pairs=1000)
    for word, translation in DICTIONARY.items():
        (source,), (target,) = corpus.pair.source.encode([word])[0], corpus.pair.target.encode([translation])[0]
        assert shortlist.of(np.array([source])).tolist() == [*range(len(SPECIALS)), target]


def test_with_one_vocabulary_every_piece_may_stay_what_it_is(tmp_path: Path) -> None:
    tiny_pair().save(tmp_path / "tokenizer")
    joint = Corpus.open(write_tiny_corpus(tmp_path, tokenizer=tmp_path / "tokenizer"))
    shortlist = learn(joint.split("train"), joint.pair, per_piece=1, frequent=0, max_pairs=1000)
    for word in WORDS:
        kept = joint.pair.target.encode([f"{word} {DICTIONARY.get(word, '')}"])[0].tolist()
        assert shortlist.of(joint.pair.source.encode([word])[0]).tolist() == [*range(len(SPECIALS)), *sorted(kept)]


def test_a_sentence_has_the_pieces_of_all_its_words_and_those_asked_for(corpus: Corpus) -> None:
    shortlist = learn(corpus.split("train"), corpus.pair, per_piece=2, frequent=1, max_pairs=1000)
    words = corpus.pair.source.encode(["ein mann rot"])[0]
    wanted = set(corpus.pair.target.encode(["a man red"])[0].tolist())
    found = shortlist.of(words, more=[9])
    assert wanted | {9} | set(shortlist.always.tolist()) <= set(found.tolist())
    assert found.tolist() == sorted(set(found.tolist()))
    assert len(shortlist.always) == len(SPECIALS) + 1


def test_more_pieces_contain_fewer(corpus: Corpus) -> None:
    few, many = (learn(corpus.split("train"), corpus.pair, count, 0, 1000) for count in (1, 3))
    for source in range(len(SPECIALS), len(corpus.pair.source.vocabulary)):
        assert set(few.of(np.array([source]))) < set(many.of(np.array([source])))


def test_it_is_stored_and_belongs_to_its_vocabularies(corpus: Corpus, tmp_path: Path) -> None:
    shortlist = learn(corpus.split("train"), corpus.pair, 2, 1, 1000)
    shortlist.save(tmp_path / "short")
    again = Shortlist.load(tmp_path / "short", corpus.pair)
    for name in ("offsets", "pieces", "always"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shortlist, name))
    other = WordTokenizer(WordsConfig(), ["ein", "mann"])
    with pytest.raises(UsageError, match="made for other vocabularies"):
        Shortlist.load(tmp_path / "short", LanguagePair("de", "en", other, other, shared=True))
    (tmp_path / "short").write_bytes(b"damaged")
    with pytest.raises(DataError, match="is damaged"):
        Shortlist.load(tmp_path / "short", corpus.pair)
    with pytest.raises(
        MissingInputError, match="is not a vocabulary shortlist; make one from a corpus folder with nmt-shortlist"
    ):
        Shortlist.load(tmp_path / "nothing", corpus.pair)


def test_a_corpus_without_sources_is_refused(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="no tokens to learn a shortlist from"):
        learn(corpus.split("train"), corpus.pair, 2, 1, max_pairs=0)


def test_every_flipped_byte_of_the_arrays_is_noticed(corpus: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "short"
    learn(corpus.split("train"), corpus.pair, 2, 1, 1000).save(path)
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")  # behind the header
    for position in range(begin, len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(DataError, match="short is damaged: .* make it again with nmt-shortlist"):
            Shortlist.load(path, corpus.pair)


def test_a_file_without_checksum_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    good, path = learn(corpus.split("train"), corpus.pair, 2, 1, 1000), tmp_path / "short"
    arrays = {"offsets": good.offsets, "pieces": good.pieces, "always": good.always}
    path.write_bytes(safetensors.numpy.save(arrays, metadata={"format": "1", "vocabularies": corpus.pair.digest()}))
    with pytest.raises(DataError, match="short is damaged"):
        Shortlist.load(path, corpus.pair)

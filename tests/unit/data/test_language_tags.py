"""Language tags in vocabularies, corpora and training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.preprocessing import FilterConfig
from nmt.config.variation import VariationConfig
from nmt.data.batching.variation import PlannedBatch, Variation
from nmt.data.corpus.folder import open_corpora
from nmt.data.corpus.stored_text import StoredPairs
from nmt.data.language_pair import PAIR_FILE, LanguagePair
from nmt.data.languages import LanguageTokens, is_tag, split_tag, tagged, tags_of
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceConfig, UnigramConfig
from nmt.data.vocabulary import EOS, Vocabulary
from nmt.errors import DataError, UsageError
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text, write

BPE = BpeConfig(vocab_size=48, user_defined_symbols=["<2fr>"])


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


def test_a_tag_is_found_in_whichever_shape_the_vocabulary_has_it() -> None:
    vocabulary = Vocabulary(["de", "<2de>", ">>fra<<", "__zh__", "la"])
    assert tags_of(vocabulary) == {"de": "<2de>", "fra": ">>fra<<", "zh": "__zh__"}
    assert tags_of(Vocabulary(["__de__", "<2de>"])) == {"de": "<2de>"}
    assert [piece for piece in vocabulary.pieces if is_tag(piece)] == ["<2de>", ">>fra<<", "__zh__"]
    tokens = LanguageTokens(tags_of(vocabulary))
    assert [tokens.code(name) for name in ("de", "fra", "<2de>", ">>fra<<", "la")] == ["de", "fra", "de", "fra", None]


def test_a_placeholder_is_no_tag() -> None:
    vocabulary = Vocabulary(["__URL__", "__init__", "_______", "__pt_BR__", "__ceb__"])
    assert [*tags_of(vocabulary)] == ["pt_BR", "ceb"]


def test_a_tag_stands_before_what_has_pieces_and_is_told_apart_from_it() -> None:
    vocabulary = Vocabulary(["<2de>", "a"])
    both = tagged([np.array([5]), np.array([], dtype=np.int64)], np.array([4]))
    assert [one.tolist() for one in both] == [[4, 5], []]
    assert [[part.tolist() for part in split_tag(ids, vocabulary)] for ids in (*both, np.array([5, 4]))] == [
        [[4], [5]],
        [[], []],
        [[], [5, 4]],
    ]
    spaced = Vocabulary(["<2de>", "\u2581", "a"])
    found = [split_tag(np.array(ids), spaced) for ids in ([5, 4, 6], [5, 4], [5, 6], [5])]
    assert [[part.tolist() for part in both] for both in found] == [
        [[5, 4], [6]],
        [[5, 4], []],
        [[], [5, 6]],
        [[], [5]],
    ]


@pytest.mark.parametrize("tokenizer", [BPE, UnigramConfig(vocab_size=48, hard_vocab_limit=False)])
@pytest.mark.parametrize("joined", [True, False])
def test_each_source_of_a_corpus_begins_with_its_tag(text: Text, tokenizer: SentencePieceConfig, joined: bool) -> None:
    write(text.folder / "test.en", ["the car", ""])
    write(text.folder / "test.de", ["Auto", ""])
    options = {"tokenizer": tokenizer, "joined_dictionary": joined, "testpref": f"{text.folder}/test"}
    plain, _ = text.make(**options, destdir=f"{text.folder}/plain")
    corpus, _ = text.make(**options, tag="de", validpref=f"{text.folder}/valid")
    pair = corpus.pair
    (tag,) = pair.direction().source.tolist()
    assert pair.languages is not None and pair.languages.tokens["de"] == "<2de>"
    assert pair.source.vocabulary.pieces[tag] == "<2de>"
    for split in ("train", "valid"):
        for number in range(len(corpus.split(split))):
            source = corpus.split(split).source(number).tolist()
            assert source[0] == tag not in source[1:]
            line = pair.source.decode(source[1:])
            assert line == SOURCE[number] and source[1:-1] == pair.source.encode([line])[0].tolist()
            assert tag not in corpus.split(split).target(number).tolist()
    assert corpus.split("test").source(0)[0] == tag and corpus.split("test").source(1).tolist() == [EOS]
    assert plain.pair.languages is None and len(plain.pair.direction().source) == 0


def test_a_pair_is_stored_with_its_tag(text: Text) -> None:
    corpus, _ = text.make(tokenizer=BPE, tag="fr")
    folder = corpus.folder / "tokenizer"
    loaded = LanguagePair.load(folder)
    assert loaded.languages == corpus.pair.languages == LanguageTokens({"fr": "<2fr>", "de": "<2fr>"})
    tree = json.loads((folder / PAIR_FILE).read_text())
    of_earlier_version = {key: value for key, value in tree.items() if key != "languages"}
    (folder / PAIR_FILE).write_text(json.dumps({**of_earlier_version, "tag": "fr"}))
    assert LanguagePair.load(folder).languages == loaded.languages
    lacking = {"tokens": {"xx": "<2xx>"}, "source": "target", "target": False}
    for key, value, message in [
        ("tag", "xx", "the source vocabulary has no token for the language 'xx'; it has tokens for fr"),
        ("languages", lacking, "the vocabulary lacks the language token '<2xx>'"),
        ("languages", {**lacking, "source": "both"}, "'both' is not a valid SourceToken"),
        ("languages", ["xx"], "languages must have the keys tokens, source and target"),
    ]:
        (folder / PAIR_FILE).write_text(json.dumps({**of_earlier_version, key: value}))
        with pytest.raises(DataError, match=f"is damaged: {message}"):
            LanguagePair.load(folder)


def test_given_vocabularies_keep_their_tags_and_others_are_refused(text: Text) -> None:
    first, _ = text.make(tokenizer=BPE, tag="de", joined_dictionary=True)
    given: dict[str, Any] = {"srcdict": str(first.folder), "tgtdict": str(first.folder), "tokenizer": BPE}
    other, _ = text.make(**given, tag="fr", destdir=f"{text.folder}/fr")
    without, _ = text.make(**given, destdir=f"{text.folder}/without")
    corpora = open_corpora([first.folder, other.folder, without.folder])
    assert [corpus.source.pieces(corpus.direction().source.tolist()) for corpus in (one.pair for one in corpora)] == [
        ["<2de>"],
        ["<2fr>"],
        [],
    ]
    assert other.split("train").source(0)[0] == other.pair.source.vocabulary.id("<2fr>")
    with pytest.raises(
        UsageError,
        match=r"no token for the language 'es'; it has tokens for .*--user-defined-symbols '<2es>' \(--tag es\)",
    ):
        text.make(**given, tag="es", destdir=f"{text.folder}/es")
    with pytest.raises(UsageError, match="it has no language tokens; a learned vocabulary"):
        text.make(tokenizer=WordsConfig(), tag="de", destdir=f"{text.folder}/words")
    with pytest.raises(UsageError, match="--tag 'a b' must be one word"):
        text.make(tokenizer=BPE, tag="a b")


def test_words_are_tagged_where_their_list_has_the_tag(text: Text) -> None:
    words = sorted({word for line in SOURCE + TARGET for word in line.split()})
    write(text.folder / "words.txt", ["<2de>", *words])
    named = f"{text.folder}/words.txt"
    corpus, _ = text.make(srcdict=named, tgtdict=named, tag="de")
    assert corpus.pair.source.pieces(corpus.split("train").source(0)[:-1].tolist()) == ["<2de>", *SOURCE[0].split()]


def test_filters_judge_the_text_without_its_tag(text: Text) -> None:
    words = sorted({word for line in SOURCE + TARGET for word in line.split()})
    write(text.folder / "words.txt", ["<2de>", *words])
    given: dict[str, Any] = {"srcdict": f"{text.folder}/words.txt", "tgtdict": f"{text.folder}/words.txt"}
    corpus, report = text.make(**given, tag="de", filters=FilterConfig(max_length=4, max_ratio=1.4))
    assert report.splits[0].kept == len(SOURCE) == len(corpus.split("train"))


def test_both_directions_are_trained_together_only_with_tags(text: Text) -> None:
    one, _ = text.make(tokenizer=BPE, joined_dictionary=True, tag="de")
    turned = {"source_lang": "de", "target_lang": "en", "srcdict": str(one.folder), "joined_dictionary": True}
    other, _ = text.make(tokenizer=BPE, **turned, tag="fr", destdir=f"{text.folder}/other")
    untagged, _ = text.make(tokenizer=BPE, **turned, destdir=f"{text.folder}/untagged")
    assert len(open_corpora([one.folder, other.folder])) == 2
    with pytest.raises(
        DataError, match=r"in the opposite direction; omit one .* make each with a language token \(--tag\)"
    ):
        open_corpora([one.folder, untagged.folder])


def test_alignments_are_those_of_the_words_behind_the_tag(text: Text) -> None:
    write(text.folder / "train.align", ["0-0 1-0 2-1 3-2"] * len(SOURCE))
    words = sorted({word for line in SOURCE + TARGET for word in line.split()})
    write(text.folder / "words.txt", ["<2de>", *words])
    given: dict[str, Any] = {"srcdict": f"{text.folder}/words.txt", "tgtdict": f"{text.folder}/words.txt"}
    found = []
    for tag, folder in ((None, "plain"), ("de", "tagged")):
        corpus, _ = text.make(**given, tag=tag, align_suffix="align", destdir=f"{text.folder}/{folder}")
        alignments = corpus.split("train").alignments
        assert alignments is not None
        found.append([alignments[number].reshape(-1, 2).tolist() for number in range(len(SOURCE))])
    assert found[0][0] == [[0, 0], [1, 0], [2, 1], [3, 2]]
    assert found[1] == [[[source + 1, target] for source, target in pairs] for pairs in found[0]]


@pytest.mark.parametrize(
    ("tokenizer", "options"),
    [
        (BpeConfig(vocab_size=60), {"bpe_dropout": 0.9}),
        (UnigramConfig(vocab_size=60, hard_vocab_limit=False), {"unigram_alpha": 0.1}),
        (BpeConfig(vocab_size=60), {"augment": ["typos=1:words=1"]}),
    ],
)
def test_text_that_varies_keeps_its_tag(text: Text, tokenizer: SentencePieceConfig, options: dict[str, Any]) -> None:
    corpus, _ = text.make(tokenizer=tokenizer, joined_dictionary=True, tag="de", keep_text=True)
    stored = StoredPairs([corpus], "train") if "augment" in options else None
    variation = Variation(corpus.split("train"), corpus.pair, VariationConfig(**options), 1, stored)
    sentences = PlannedBatch(np.arange(len(SOURCE)), 1)
    sources, targets = variation.read(sentences)
    (tag,) = corpus.pair.direction().source.tolist()
    assert [source.tolist() for source in sources] != [source.tolist() for source in variation.usual(sentences)[0]]
    assert all(source[0] == tag not in source[1:].tolist() for source in sources)
    assert not any(tag in target.tolist() for target in targets)


def test_shards_of_a_tagged_corpus_make_the_tagged_corpus(text: Text) -> None:
    first, _ = text.make(tokenizer=BPE, tag="de", joined_dictionary=True)
    given = dataclasses.replace(text.config, srcdict=str(first.folder), tgtdict=str(first.folder), tag="fr")
    text.config = given
    whole, _ = text.make(destdir=f"{text.folder}/whole")
    for number in (1, 2):
        text.make(shard=f"{number}/2", destdir=f"{text.folder}/shards")
    joined, _ = text.make(
        merge=f"{text.folder}/shards",
        trainpref=None,
        srcdict=None,
        tgtdict=None,
        tag=None,
        destdir=f"{text.folder}/joined",
    )
    for path in whole.folder.rglob("train.*"):
        assert (joined.folder / path.name).read_bytes() == path.read_bytes()
    assert joined.pair.languages == whole.pair.languages != first.pair.languages

"""Pieces that are drawn anew: BPE-dropout and the unigram model, against the library and against what the papers say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.randomness import RESOLUTION, Stream, below, drawn
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceConfig, UnigramConfig
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.tokenizers.unigram_sampling import UnigramSampling
from nmt.data.vocabulary import Ints
from nmt.errors import UsageError
from nmt.native import library as native

LINES = [
    f"{subject} {verb} {thing}"
    for subject in ("the older brother", "a brotherhood of builders", "nobody")
    for verb in ("rebuilds", "undoes", "is rebuilding", "unbuilt")
    for thing in ("the lower houses", "a householder's tower", "its towering household")
]


def learned(config: SentencePieceConfig) -> Tokenizer:
    config.vocab_size, config.hard_vocab_limit = 90, False
    return tokenizers.build(config).train(LINES, seed=1)


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return learned(BpeConfig())


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return learned(UnigramConfig())


@pytest.fixture(params=["in C", "in Python"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "in C" and native.library() is None:
        pytest.skip("the library is not built")
    if request.param == "in Python":
        monkeypatch.setattr("nmt.data.tokenizers.bpe_dropout.library", lambda: None)
    yield request.param


def sample(sampler: Sampler, sentences: list[Ints], seed: int = 1, first: int = 0) -> list[list[int]]:
    lengths = np.array([len(sentence) for sentence in sentences])
    seeds = drawn(np.arange(first, first + len(sentences)), seed)
    ids, counts = sampler(np.concatenate(sentences), lengths, seeds)
    return [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]


def test_without_dropout_the_pieces_are_those_of_the_library(bpe: Tokenizer, each_loop: str) -> None:
    sentences = bpe.encode(LINES)
    assert sample(bpe.bpe_dropout(0.0), sentences) == [sentence.tolist() for sentence in sentences]


def test_with_all_merges_left_out_words_are_characters(bpe: Tokenizer, each_loop: str) -> None:
    for drawn_ids in sample(bpe.bpe_dropout(1 - 1e-15), bpe.encode(LINES)):
        assert {len(piece) for piece in bpe.pieces(drawn_ids)} == {1}


def test_both_loops_draw_the_same(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("the library is not built")
    sentences = bpe.encode(LINES)
    in_c = [sample(bpe.bpe_dropout(dropout), sentences) for dropout in (0.1, 0.5, 0.9)]
    monkeypatch.setattr("nmt.data.tokenizers.bpe_dropout.library", lambda: None)
    assert in_c == [sample(bpe.bpe_dropout(dropout), sentences) for dropout in (0.1, 0.5, 0.9)]
    assert in_c[1] != [sentence.tolist() for sentence in sentences]


MAKERS: dict[str, Callable[[Tokenizer], Sampler]] = {
    "bpe": lambda tokenizer: tokenizer.bpe_dropout(0.3),
    "unigram": lambda tokenizer: tokenizer.unigram_sampling(0.3),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_drawn_spells_the_text_and_differs_by_seed(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    sentences = tokenizer.encode(LINES)
    one, other = (sample(MAKERS[kind](tokenizer), sentences, seed) for seed in (1, 2))
    assert [tokenizer.decode(ids) for ids in one] == LINES == [tokenizer.decode(ids) for ids in other]
    assert one != other


@pytest.mark.parametrize("kind", MAKERS)
def test_a_sentence_is_cut_alike_alone_and_among_others(kind: str, request: pytest.FixtureRequest) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    sentences = tokenizer.encode([*LINES[:3], "", *LINES[3:]])
    together = sample(MAKERS[kind](tokenizer), sentences)
    again = MAKERS[kind](tokenizer)
    alone = [sample(again, [sentences[place]], first=place)[0] for place in reversed(range(len(sentences)))]
    assert together == alone[::-1]


def test_the_same_seed_draws_the_same_in_any_version(bpe: Tokenizer) -> None:
    """A run that goes on after an update of ours must read what it would have read. The number is that of splitmix64."""
    assert Stream(1234567).next() == 6_457_827_717_110_365_317 >> 11
    assert drawn(np.arange(2), 7).tolist() == [10946952438034858134, 14888882505985672754]


def test_merges_are_left_out_as_the_paper_says() -> None:
    """Of a word with two merges, (a b) first and then (ab c): it ends as a b c, ab c or abc with these probabilities. (b c)
    is no merge."""
    from nmt.data.tokenizers.bpe_dropout import Merges

    merges = Merges({(0, 1): (1.0, 3), (3, 2): (2.0, 4)}, [10, 11, 12, 13, 14])
    count, dropout = 20_000, 0.4
    parts, sizes = np.tile(np.arange(3), count), np.full(count, 3)
    _, made = merges.drop(parts, sizes, drawn(np.arange(count), 3), dropout)
    found, kept = Counter(made.tolist()), 1 - dropout
    for size, expected in {3: dropout, 2: kept * dropout, 1: kept * kept}.items():
        assert found[size] / count == pytest.approx(expected, abs=0.015)


def test_segmentations_are_drawn_with_their_probabilities() -> None:
    """Compared with all segmentations of a word, listed one by one."""
    scores = {
        "_": -1.5,
        "a": -2.0,
        "b": -2.5,
        "ab": -3.0,
        "ba": -3.5,
        "_a": -2.2,
        "aba": -3.1,
        "_aba": -2.9,
        "bab": -5.0,
    }
    text, alpha, count = "_abab", 0.5, 20_000
    weights: dict[tuple[str, ...], float] = {}
    for cuts in range(2 ** (len(text) - 1)):
        places = [0, *(place for place in range(1, len(text)) if cuts >> (place - 1) & 1), len(text)]
        pieces = tuple(text[begin:end] for begin, end in pairwise(places))
        if scores.keys() >= set(pieces):
            weights[pieces] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    listed = ["", "", "", "", *scores]
    best = max(weights, key=lambda pieces: weights[pieces])
    sampler = UnigramSampling(np.array([piece.startswith("_") for piece in listed]), listed, scores, alpha)
    drawn_ids = sample(sampler, [np.array([listed.index(piece) for piece in best])] * count)
    found = Counter(tuple(listed[number] for number in ids) for ids in drawn_ids)
    assert len(weights) > 10 and found.keys() <= weights.keys()
    for pieces, weight in weights.items():
        assert found[pieces] / count == pytest.approx(weight / sum(weights.values()), abs=0.015)


def test_what_the_model_does_not_know_stays(bpe: Tokenizer, unigram: Tokenizer) -> None:
    for tokenizer, sampler in ((bpe, bpe.bpe_dropout(0.5)), (unigram, unigram.unigram_sampling(0.1))):
        (sentence,) = tokenizer.encode(["rebuilds Ωhouses rebuilds"])
        unknown = sentence.tolist().index(1)
        words = [place for place, piece in enumerate(tokenizer.pieces(sentence.tolist())) if piece.startswith("\u2581")]
        begin = max(place for place in words if place <= unknown)
        end = min(place for place in words if place > unknown)
        for ids in sample(sampler, [sentence] * 20):
            assert any(ids[at : at + end - begin] == sentence[begin:end].tolist() for at in range(len(ids)))


@pytest.mark.parametrize("config", [BpeConfig, UnigramConfig])
def test_symbols_of_users_stay_whole(config: type[SentencePieceConfig]) -> None:
    """Also where the text has all their characters, and pieces that are parts of them."""
    symbols = ["<2de>", "<2", "ou"]
    made = config(vocab_size=90, hard_vocab_limit=False, user_defined_symbols=symbols)
    tokenizer = tokenizers.build(made).train([f"{line} < 2 de > 2de" for line in LINES], seed=1)
    numbers = [tokenizer.vocabulary.id(symbol) for symbol in symbols]
    sentences = [np.append(numbers[0], ids) for ids in tokenizer.encode([f"{line} <2de> <2" for line in LINES])]
    sampler = tokenizer.bpe_dropout(0.7) if config is BpeConfig else tokenizer.unigram_sampling(0.01)
    drawn_sentences = sample(sampler, sentences)
    assert drawn_sentences != [ids.tolist() for ids in sentences]
    for usual, ids in zip(sentences, drawn_sentences):
        assert [number for number in ids if number in numbers] == [number for number in usual if number in numbers]
        assert ids[0] == numbers[0]


def test_pieces_that_a_list_lacks_are_never_drawn(bpe: Tokenizer) -> None:
    known = [piece for piece in bpe.vocabulary.pieces[4:] if piece not in ("b", "bu")]
    model = bpe.model_bytes()  # type: ignore[attr-defined]
    listed = SentencePieceList(SentencePieceListConfig(), model, known)
    sentences = listed.encode(LINES)
    for usual, ids in zip(sentences, sample(listed.bpe_dropout(0.7), sentences)):
        assert ids.count(1) == usual.tolist().count(1) and listed.decode(ids) == listed.decode(usual.tolist())


CODES = b"#version: 0.2\nh a\nu s</w>\nha us</w>\ne n</w>\nha u\nu s\n"


@pytest.mark.parametrize(
    ("ends", "pieces"),
    [
        (WordEnds.at_signs, "h@@ a@@ u@@ s ha@@ us haus e@@ n en s@@ us@@ hau@@"),
        (WordEnds.end_of_word, "h a u s</w> ha us</w> haus</w> e n</w> en</w> s us hau"),
    ],
)
def test_merge_operations_of_imported_models_are_left_out_too(ends: WordEnds, pieces: str, each_loop: str) -> None:
    tokenizer = BpeCodes(BpeCodesConfig(word_ends=ends), CODES, pieces.split())
    lines = ["haus haus en", "hausen s", "xhaus en"]
    sentences = tokenizer.encode(lines)
    assert sample(tokenizer.bpe_dropout(0.0), sentences) == [sentence.tolist() for sentence in sentences]
    whole = tokenizer.encode(["haus en"])
    found = {tuple(sample(tokenizer.bpe_dropout(0.5), whole, seed)[0]) for seed in range(200)}
    assert {tokenizer.decode(ids) for ids in found} == {"haus en"} and 8 <= len(found) <= 12
    with pytest.raises(UsageError, match="version 0.1"):
        BpeCodes(BpeCodesConfig(word_ends=ends), CODES.replace(b"0.2", b"0.1"), pieces.split()).bpe_dropout(0.1)


@pytest.mark.parametrize(
    ("kind", "make", "expected"),
    [
        ("unigram", lambda tokenizer: tokenizer.bpe_dropout(0.1), r"--bpe-dropout.*tokenizer=unigram.*tokenizer=bpe"),
        ("bpe", lambda tokenizer: tokenizer.unigram_sampling(0.1), r"--unigram-alpha.*tokenizer=bpe.*=unigram"),
    ],
)
def test_a_tokenizer_of_another_kind_is_refused(
    kind: str, make: Callable[[Tokenizer], Sampler], expected: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(UsageError, match=expected):
        make(request.getfixturevalue(kind))
    with pytest.raises(UsageError, match="tokenizer=words"):
        make(WordTokenizer(WordsConfig(), ["a"]))


def test_what_happens_with_a_probability_happens_that_often() -> None:
    bits = drawn(np.arange(20_000), 1, 2, 3)
    assert below(bits, 0.05).mean() == pytest.approx(0.05, abs=0.005)
    assert below(bits, 1.0).all() and not below(bits, 0.0).any()
    stream = Stream(9)
    assert np.mean([stream.next() for _ in range(5000)]) == pytest.approx(RESOLUTION / 2, rel=0.03)

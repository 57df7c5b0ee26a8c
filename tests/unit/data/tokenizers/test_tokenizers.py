"""What every tokenizer promises, and what is particular to each."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.choices import PieceMarks
from nmt.config.option import flags_of
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig, UnigramConfig
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from nmt.errors import DataError, MissingInputError, UsageError
from tests.unit.data.tokenizers.german import TEXT

HOSTILE = ["</s>", "<s> <unk> <pad>", "a</s>b", "\u2581", "a\u2581b", "\u2585", "\u2047", "<0x0A>", "\x85", "a\u2028b"]
CONFIGS = {
    "bpe": BpeConfig(vocab_size=120),
    "unigram": UnigramConfig(vocab_size=45),
    "char": CharConfig(),
    "words": WordsConfig(),
}


def with_a_list_of_its_own(tmp_path: Path) -> Tokenizer:
    """A sentencepiece model whose pieces stand in another order, with others among them."""
    trained = train(CONFIGS["bpe"])
    trained.save(tmp_path, "joint")
    pieces = [*sorted(trained.vocabulary.pieces[4:]), "madeupword0000"]
    return SentencePieceList(SentencePieceListConfig(), (tmp_path / "joint.model").read_bytes(), pieces)


def with_merges(ends: WordEnds) -> Tokenizer:
    """Merge operations, and the pieces that the text has by them."""
    codes = b"#version: 0.2\ne i\nei n</w>\nd e\nde r</w>\ns t\n"
    cutting = BpeCodes(BpeCodesConfig(), codes, [])
    pieces = {piece for line in TEXT for piece in cutting.surfaces(line)}
    if ends is WordEnds.end_of_word:
        pieces = {piece.removesuffix("@@") if piece.endswith("@@") else f"{piece}</w>" for piece in pieces}
    return BpeCodes(BpeCodesConfig(ends), codes, sorted(pieces))


IMPORTED = {
    "sentencepiece_list": with_a_list_of_its_own,
    "bpe_codes": lambda _: with_merges(WordEnds.at_signs),
    "bpe_codes, end_of_word": lambda _: with_merges(WordEnds.end_of_word),
}


@pytest.fixture(scope="module", params=[*CONFIGS, *IMPORTED])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    if request.param in CONFIGS:
        return train(CONFIGS[request.param])
    return IMPORTED[request.param](tmp_path_factory.mktemp("imported"))


def train(config: Any, lines: list[str] = TEXT, seed: int = 1) -> Tokenizer:
    return tokenizers.build(config).train(iter(lines), seed)


def texts_of(words: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), max_size=8).map(" ".join)


KNOWN = texts_of(sorted({word for line in TEXT for word in line.split()}))


def test_every_registered_tokenizer_is_tested_here() -> None:
    assert set(tokenizers.names()) == {name.partition(",")[0] for name in (*CONFIGS, *IMPORTED)}


@pytest.mark.slow
def test_known_text_survives_encoding_and_decoding(tokenizer: Tokenizer) -> None:
    @given(st.lists(KNOWN, max_size=5))
    def holds(lines: list[str]) -> None:
        assert [tokenizer.decode(ids.tolist()) for ids in tokenizer.encode(lines)] == lines

    holds()


@pytest.mark.slow
def test_text_never_becomes_a_control_id(tokenizer: Tokenizer) -> None:
    @given(st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]))), max_size=4))
    def holds(lines: list[str]) -> None:
        for ids in tokenizer.encode(lines):
            assert not set(ids.tolist()) & {PAD, BOS, EOS}
            assert all(0 <= number < len(tokenizer.vocabulary) for number in ids)

    holds()


def test_decoded_text_is_one_line_for_every_reader(tokenizer: Tokenizer) -> None:
    @given(st.lists(st.integers(0, len(tokenizer.vocabulary) - 1)))
    def holds(ids: list[int]) -> None:
        assert len(tokenizer.decode(ids).splitlines()) <= 1

    holds()


def test_lines_do_not_influence_each_other(tokenizer: Tokenizer) -> None:
    lines = [*TEXT[:5], "", "  ", *HOSTILE]
    together = tokenizer.encode(lines)
    assert [ids.tolist() for ids in together] == [tokenizer.encode([line])[0].tolist() for line in lines]


@pytest.mark.slow
def test_many_lines_in_one_array_have_the_same_ids(tokenizer: Tokenizer) -> None:
    text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
    known = st.lists(st.sampled_from(" ".join(TEXT).split(" ") + [""])).map(" ".join)

    @given(st.lists(st.one_of(st.sampled_from(HOSTILE), text, known), max_size=6))
    def holds(lines: list[str]) -> None:
        tokens, lengths = tokenizer.encode_flat(lines)
        sentences = [[*ids.tolist(), EOS] for ids in tokenizer.encode(lines)]
        assert tokens.tolist() == [number for ids in sentences for number in ids]
        assert lengths.tolist() == [*map(len, sentences)]

    holds()


def test_nothing_encodes_to_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode([]) == []
    assert [len(ids) for ids in tokenizer.encode(["", ""])] == [0, 0]
    assert tokenizer.decode([]) == ""


def test_ids_are_flat_int64_arrays(tokenizer: Tokenizer) -> None:
    for ids in tokenizer.encode([TEXT[0], ""]):
        assert ids.dtype == np.int64 and ids.ndim == 1


def test_specials_are_left_out_of_decoded_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode([TEXT[0]])[0].tolist()
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == TEXT[0]


def test_an_unknown_piece_is_shown_as_a_visible_mark(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode([f"{TEXT[0]} 語"])[0].tolist()
    assert UNK in ids
    assert tokenizer.decode(ids).split() == [*TEXT[0].split(), "\u2047"]


def test_unknown_pieces_can_be_written_by_what_they_stand_for(tokenizer: Tokenizer) -> None:
    line = f"語 {TEXT[0]} 字"
    ids, surfaces = tokenizer.encode([line])[0].tolist(), tokenizer.surfaces(line)
    assert len(surfaces) == len(ids)
    unknown = [surface for number, surface in zip(ids, surfaces) if number == UNK]
    assert unknown == ["語", "字"]
    assert tokenizer.decode_with(ids, unknown) == line
    assert tokenizer.decode_with(ids, ["one", "two\nlines"]) == f"one {TEXT[0]} two lines"


def test_a_word_in_place_of_an_unknown_piece_has_spaces_where_the_piece_had(tokenizer: Tokenizer) -> None:
    word = TEXT[0].split()[0]
    for line in (f"{word}語", f"語{word}", f"{word} 語{word} 字", "語", f"{word}語{word} {word}"):
        ids, surfaces = tokenizer.encode([line])[0].tolist(), tokenizer.surfaces(line)
        unknown = [surface for number, surface in zip(ids, surfaces) if number == UNK]
        assert unknown and tokenizer.decode_with(ids, unknown) == line


def test_there_is_one_piece_for_each_id_and_none_holds_a_space(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode([TEXT[0]])[0].tolist(), EOS]
    pieces = tokenizer.pieces(ids)
    assert " ".join(pieces).split() == pieces
    assert len(pieces) == len(ids) and pieces[-1] == "</s>"


def test_the_first_four_entries_are_the_specials(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocabulary.pieces[:4] == SPECIALS


def test_what_is_saved_loads_as_the_same_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path, "joint")
    loaded = tokenizers.build(tokenizer.config).load(tmp_path, "joint")
    assert loaded.vocabulary == tokenizer.vocabulary
    lines = [*TEXT[:3], *HOSTILE]
    assert [ids.tolist() for ids in loaded.encode(lines)] == [ids.tolist() for ids in tokenizer.encode(lines)]


@pytest.mark.parametrize("name", CONFIGS)
def test_training_twice_writes_the_same_bytes(name: str, tmp_path: Path) -> None:
    train(CONFIGS[name]).save(tmp_path, "first")
    train(CONFIGS[name]).save(tmp_path, "second")
    first, second = sorted(path.read_bytes() for path in tmp_path.iterdir())
    assert first == second


@pytest.mark.parametrize("config", [SentencePieceListConfig(), BpeCodesConfig()])
def test_a_tokenizer_of_imported_models_is_neither_trained_nor_given(config: Any, tmp_path: Path) -> None:
    for make in (lambda: train(config), lambda: tokenizers.build(config).from_file(tmp_path / "codes")):
        with pytest.raises(UsageError, match="comes with an imported model; .*--srcdict FOLDER"):
            make()


def test_a_tokenizer_travels_to_another_process(tokenizer: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode(TEXT[:1])[0].tolist() == tokenizer.encode(TEXT[:1])[0].tolist()


def test_a_lone_surrogate_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"sentence 2: .*U\+DC80"):
        tokenizer.encode(["ok", "a\udc80"])


def test_a_missing_file_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="source"):
        tokenizers.build(tokenizer.config).load(tmp_path, "source")


@pytest.mark.parametrize(
    "flag", ["--vocab-size", "--character-coverage", "--normalization", "--byte-fallback", "--min-count"]
)
def test_tokenizer_options_have_flags(flag: str) -> None:
    keys = {known.name: known.key for known in flags_of(PreprocessConfig)}
    assert keys[flag] == f"tokenizer.{flag[2:].replace('-', '_')}"


@pytest.mark.parametrize(
    ("marks", "line", "text"),
    [
        (PieceMarks.subword_nmt, "ein hau@@ s steht", "ein haus steht"),
        (PieceMarks.sentencepiece, "\u2581ein \u2581hau s \u2581steht", "ein haus steht"),
        (PieceMarks.none, "ein hau@@ s steht", "ein hau@@ s steht"),
    ],
)
def test_words_of_text_that_was_cut_before_are_joined_when_they_are_decoded(
    marks: PieceMarks, line: str, text: str
) -> None:
    tokenizer = train(WordsConfig(), [line]).joining(marks)
    ids = tokenizer.encode([line])[0].tolist()
    assert tokenizer.pieces(ids) == tokenizer.surfaces(line) == line.split()
    assert tokenizer.decode(ids) == text


def test_a_piece_in_place_of_an_unknown_one_is_joined_too() -> None:
    tokenizer = train(WordsConfig(), ["ein hau@@ s"]).joining(PieceMarks.subword_nmt)
    ids = tokenizer.encode(["ein gar@@ ten@@ hau@@ s"])[0].tolist()
    assert tokenizer.decode_with(ids, ["gar@@", "ten@@"]) == "ein gartenhaus"


def test_joining_leaves_the_tokenizer_as_it_was(tokenizer: Tokenizer) -> None:
    before = tokenizer.marks
    other = tokenizer.joining(PieceMarks.subword_nmt)
    assert tokenizer.marks is before is PieceMarks.none
    assert (other.marks is PieceMarks.subword_nmt) == tokenizer.keeps_pieces == (other is not tokenizer)

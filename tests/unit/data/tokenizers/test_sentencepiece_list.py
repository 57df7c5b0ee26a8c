"""A sentencepiece model that cuts, and a list of pieces that gives the ids."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import sentencepiece

from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, MissingInputError

TEXT = [f"the {noun} is {colour}" for noun in ("house", "tree", "car") for colour in ("red", "green", "old")]
CONFIG = SentencePieceListConfig()


def trained(vocab_size: int = 45, **options: object) -> bytes:
    """A model with the ids that sentencepiece gives by itself: unk 0, bos 1, eos 2."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="bpe",
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def model() -> bytes:
    return trained()


def pieces_of(model: bytes) -> list[str]:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [piece for piece in library.id_to_piece(list(range(library.vocab_size()))) if not piece.startswith("<")]


def test_the_list_decides_the_ids_and_the_model_where_text_is_cut(model: bytes) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [*reversed(pieces_of(model)), "madeupword0000"]
    ids = SentencePieceList(CONFIG, model, pieces).encode(TEXT)
    assert [[pieces[number - 4] for number in line] for line in ids] == library.encode(TEXT, out_type=str)


def test_a_piece_that_the_list_lacks_is_unknown(model: bytes) -> None:
    pieces = pieces_of(model)
    pieces.remove("\u2581the")
    ids = SentencePieceList(CONFIG, model, pieces).encode(["the house"])[0].tolist()
    assert ids[0] == UNK and UNK not in ids[1:]


def test_a_character_that_only_the_list_knows_has_its_id(model: bytes) -> None:
    tokenizer = SentencePieceList(CONFIG, model, [*pieces_of(model), "語", "字"])
    ids = tokenizer.encode(["old 語 tree 学"])[0].tolist()
    assert tokenizer.pieces(ids).count("語") == 1 and ids[-1] == UNK
    assert tokenizer.decode(ids[:-1]).split() == ["old", "語", "tree"]


def test_pieces_of_another_model_are_decoded_by_their_letters(model: bytes) -> None:
    tokenizer = SentencePieceList(CONFIG, model, [*pieces_of(model), "\u2581Häus", "er", "\u2581alt"])
    ids = [tokenizer.vocabulary.id(piece) for piece in ("\u2581Häus", "er", "\u2581alt", "\u2581old")]
    assert tokenizer.decode(ids) == "Häuser alt old"


def test_the_token_of_a_language_is_one_piece_where_a_line_begins(model: bytes) -> None:
    tokenizer = SentencePieceList(SentencePieceListConfig(language_tokens=True), model, [*pieces_of(model), ">>deu<<"])
    lines = [">>deu<< the house", ">>deu<<", "the >>deu<< house", "the house", ">>fra<< the house"]
    first, alone, within, without, unknown = (ids.tolist() for ids in tokenizer.encode(lines))
    token = tokenizer.vocabulary.id(">>deu<<")
    assert first == [token, *without] and alone == [token]
    assert token not in within and len(unknown) > len(first) and unknown[-len(without) :] == without
    assert tokenizer.decode(first) == lines[0]
    assert tokenizer.surfaces(lines[0]) == [">>deu<<", *tokenizer.surfaces(lines[3])]


def test_bytes_that_spell_a_character_are_put_together() -> None:
    model = trained(vocab_size=290, byte_fallback=True)
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = library.id_to_piece(list(range(3, library.vocab_size())))
    tokenizer = SentencePieceList(CONFIG, model, reversed(pieces))
    ids = tokenizer.encode(["old 語"])[0].tolist()
    assert UNK not in ids and tokenizer.decode(ids) == "old 語"


def test_the_files_are_the_model_as_it_was_and_the_list(model: bytes, tmp_path: Path) -> None:
    SentencePieceList(CONFIG, model, ["b", "a"]).save(tmp_path, "source")
    assert (tmp_path / "source.model").read_bytes() == model
    assert json.loads((tmp_path / "source.json").read_text(encoding="utf-8")) == ["b", "a"]


@pytest.mark.parametrize("name", ["source.model", "source.json"])
def test_a_missing_or_damaged_file_is_named(name: str, model: bytes, tmp_path: Path) -> None:
    SentencePieceList(CONFIG, model, ["b", "a"]).save(tmp_path, "source")
    (tmp_path / name).write_bytes(b"[")
    with pytest.raises(DataError, match=f"{name} is damaged"):
        tokenizers.build(CONFIG).load(tmp_path, "source")
    (tmp_path / name).unlink()
    with pytest.raises(MissingInputError, match=name):
        tokenizers.build(CONFIG).load(tmp_path, "source")

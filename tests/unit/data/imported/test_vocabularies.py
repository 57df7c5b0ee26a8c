"""Lists of pieces of fairseq, Marian and Hugging Face."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece

from nmt.data.imported.vocabularies import (
    read_fairseq_dictionary,
    read_huggingface_vocabulary,
    read_marian_vocabulary,
)
from nmt.errors import DataError, MissingInputError

Reader = Callable[[Path], list[str]]
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


@pytest.mark.parametrize(
    ("content", "symbols"),
    [
        ("the 12\nHaus@@ 3\nmadeupword0000 0\n", ["the", "Haus@@", "madeupword0000"]),
        ("5 7\n7 7", ["5", "7"]),
        ("the 12\r\nof 3\r\n", ["the", "of"]),
        ("a\u2028b 1\n\u3000 2\n", ["a\u2028b", "\u3000"]),
        ("#fairseq:overwrite 3\n", ["#fairseq:overwrite"]),
        (
            "<unk> 9 #fairseq:overwrite\nthe 1\nthe 2 #fairseq:overwrite\n",
            ["<unk>", "the overwritten 1", "the"],
        ),
        (
            "a 1\na 2 #fairseq:overwrite\na overwritten 1 3\na 4 #fairseq:overwrite\n",
            ["a overwritten 2", "a overwritten 3", "a overwritten 1", "a"],
        ),
    ],
)
def test_a_dictionary_of_fairseq_follows_its_four_specials(content: str, symbols: list[str], tmp_path: Path) -> None:
    assert read_fairseq_dictionary(file(tmp_path, "dict.de.txt", content)) == [*SPECIALS, *symbols]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("the 12\nof\n", r"dict.txt:2: 'of' is not a token and its count"),
        ("the 12\n\nof 3\n", r"dict.txt:2: '' is not"),
        ("the twelve\n", r"dict.txt:1"),
        ("the 12 #other\n", r"dict.txt:1"),
        ("the 12\nof 4\nthe 3\n", r"dict.txt:3: 'the' is also in line 1; .*#fairseq:overwrite"),
        ("<unk> 12\n", r"dict.txt:1: '<unk>' is a special symbol"),
        (b"\xff 1\n", r"byte 0 is not UTF-8"),
    ],
)
def test_a_bad_dictionary_of_fairseq_is_refused_with_its_line(
    content: str | bytes, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=complaint):
        read_fairseq_dictionary(file(tmp_path, "dict.txt", content))


@pytest.mark.parametrize(
    ("name", "content", "pieces"),
    [
        ("vocab.yml", '"</s>": 0\n"<unk>": 1\n"\\u2581no": 2\n"\\"": 3\n', ["</s>", "<unk>", "\u2581no", '"']),
        ("vocab.yml", "</s>: 0\n<unk>: 1\nno: 2\n5: 3\nnull: 4\n", ["</s>", "<unk>", "no", "5", "null"]),
        ("vocab.yml", '"b": 1\n"a": 0\n', ["a", "b"]),
        ("vocab.yml", '"\\ud83d\\ude00": 0\n', ["\U0001f600"]),
        ("vocab.json", '{"a": 1,\n "b": 0}', ["b", "a"]),
        ("vocab.txt", "</s>\n<unk>\n\u2581the\n", ["</s>", "<unk>", "\u2581the"]),
    ],
)
def test_a_vocabulary_of_marian_is_read_by_its_ids(name: str, content: str, pieces: list[str], tmp_path: Path) -> None:
    assert read_marian_vocabulary(file(tmp_path, name, content)) == pieces


def test_a_sentencepiece_model_is_a_vocabulary_of_marian(tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the house", "the tree"]), model_writer=model, vocab_size=20, minloglevel=2,
        hard_vocab_limit=False, bos_id=-1, eos_id=0, unk_id=1, bos_piece="<s>",
    )  # fmt: skip
    pieces = read_marian_vocabulary(file(tmp_path, "vocab.spm", model.getvalue()))
    assert pieces[:2] == ["</s>", "<unk>"] and "\u2581t" in pieces
    with pytest.raises(DataError, match="not a sentencepiece model"):
        read_marian_vocabulary(file(tmp_path, "vocab.spm", "the"))


def test_a_vocabulary_of_hugging_face_is_read_by_its_ids(tmp_path: Path) -> None:
    assert read_huggingface_vocabulary(file(tmp_path, "vocab.json", '{"<pad>": 2, "</s>": 0, "a": 1}')) == [
        "</s>",
        "a",
        "<pad>",
    ]


@pytest.mark.parametrize(
    ("read", "name", "content", "complaint"),
    [
        (read_marian_vocabulary, "v.yml", '"a": 0\n"b": 2\n', "has no token with id 1"),
        (read_marian_vocabulary, "v.yml", '"a": 0\n"b": 0\n', "has no token with id 1, or two with id 0"),
        (read_marian_vocabulary, "v.yml", '"a": 0\n"a": 1\n', "each token once"),
        (read_marian_vocabulary, "v.yml", "- a\n- b\n", "not a mapping of tokens to ids"),
        (read_marian_vocabulary, "v.yml", "a: [\n", "not a mapping of tokens to ids"),
        (read_marian_vocabulary, "v.yml", "a: x\n", "not a mapping of tokens to ids"),
        (read_marian_vocabulary, "v.yml", "[a]: 0\n", "not a mapping of tokens to ids"),
        (read_marian_vocabulary, "v.yml", "!!python/object/apply:os.system [x]: 0\n", "not a mapping of tokens to ids"),
        (read_marian_vocabulary, "v.yml", '"\\ud83d": 0\n', "not a character"),
        (read_marian_vocabulary, "v.txt", "a\n\nb\n", r"v.txt:2 is empty"),
        (read_marian_vocabulary, "v.txt", "a\na\n", "holds 'a' twice"),
        (read_marian_vocabulary, "v.txt", "", "empty"),
        (read_huggingface_vocabulary, "v.json", "{", "not JSON"),
        (read_huggingface_vocabulary, "v.json", "[" * 100_000, "not JSON"),
        (read_huggingface_vocabulary, "v.json", "[]", "not a mapping of tokens to ids"),
        (read_huggingface_vocabulary, "v.json", '{"a": true}', "not a mapping of tokens to ids"),
        (read_huggingface_vocabulary, "v.json", '{"a": -1}', "has no token with id 0"),
        (read_huggingface_vocabulary, "v.json", "{}", "empty"),
    ],
)
def test_another_list_is_refused(read: Reader, name: str, content: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=complaint):
        read(file(tmp_path, name, content))


@pytest.mark.parametrize(
    "read",
    [read_fairseq_dictionary, read_marian_vocabulary, read_huggingface_vocabulary],
    ids=lambda read: read.__name__,
)
def test_a_missing_list_is_named(read: Reader, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"none\.json"):
        read(tmp_path / "none.json")

"""Corpora of text that another toolkit's segmenter cuts."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from nmt.config.choices import Segmentation
from nmt.data.corpus.folder import Corpus
from nmt.errors import DataError, MissingInputError, UsageError
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text

CODES = "#version: 0.2\nt h\nth e</w>\ni s</w>\n"


@pytest.fixture
def text(tmp_path: Path) -> Text:
    text = Text(tmp_path)
    (tmp_path / "codes").write_text(CODES, encoding="utf-8")
    (tmp_path / "bad").write_text("th\n", encoding="utf-8")
    (tmp_path / "counted").write_text("the 9\nis 8\nwithout\n", encoding="utf-8")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*SOURCE, *TARGET]), model_writer=file, vocab_size=30, minloglevel=2
    )
    (tmp_path / "cut.model").write_bytes(file.getvalue())
    return text


def cut(corpus: Corpus, number: int, side: str = "source") -> list[str]:
    tokenizer, split = getattr(corpus.pair, side), corpus.split("train")
    ids = split.source(number) if side == "source" else split.target(number)
    return [tokenizer.vocabulary.pieces[piece] for piece in ids[:-1]]


@pytest.mark.parametrize("kind", [Segmentation.subword_nmt, Segmentation.fastbpe])
def test_codes_cut_text_and_their_pieces_are_counted(text: Text, kind: Segmentation) -> None:
    corpus, _ = text.make(bpe=kind, bpe_model=f"{text.folder}/codes")
    assert cut(corpus, 0) == ["the", "h@@", "o@@", "u@@", "s@@", "e", "is", "r@@", "e@@", "d"]
    assert corpus.pair.source.vocabulary.pieces[4:8] == ("e@@", "is", "r@@", "the"), "by frequency, then by name"
    assert not corpus.pair.shared and corpus.pair.source.decode(corpus.split("train").source(0)) == SOURCE[0]


def test_one_vocabulary_is_counted_over_both_languages(text: Text) -> None:
    corpus, _ = text.make(bpe=Segmentation.subword_nmt, bpe_model=f"{text.folder}/codes", joined_dictionary=True)
    pieces = corpus.pair.source.vocabulary.pieces
    assert corpus.pair.shared and corpus.pair.target.vocabulary.pieces == pieces and {"the", "H@@"} <= set(pieces)


def test_a_dictionary_of_fairseq_numbers_what_a_sentencepiece_model_cuts(text: Text) -> None:
    model = sentencepiece.SentencePieceProcessor(model_file=f"{text.folder}/cut.model")
    known = sorted({piece for line in SOURCE for piece in model.encode(line, out_type=str)}, reverse=True)
    (text.folder / "dict.en.txt").write_text("".join(f"{piece} 7\n" for piece in known), encoding="utf-8")
    options: dict[str, Any] = {"bpe": Segmentation.sentencepiece, "bpe_model": f"{text.folder}/cut.model"}
    dictionary = f"{text.folder}/dict.en.txt"
    corpus, _ = text.make(srcdict=dictionary, tgtdict=dictionary, **options)
    assert corpus.pair.source.vocabulary.pieces[4:] == tuple(known)
    assert cut(corpus, 3) == model.encode(SOURCE[3], out_type=str)
    assert "<unk>" in cut(corpus, 3, "target"), "pieces that the dictionary lacks"


def test_a_source_alone_is_cut_as_well(text: Text) -> None:
    corpus, _ = text.make(bpe=Segmentation.subword_nmt, bpe_model=f"{text.folder}/codes", only_source=True)
    assert cut(corpus, 0)[0] == "the"


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        (
            {"bpe_model": "codes"},
            UsageError,
            "give the kind of --bpe-model codes: --bpe sentencepiece, subword_nmt or fastbpe",
        ),
        ({"bpe": Segmentation.subword_nmt}, UsageError, "needs the file that segmented the text: --bpe-model FILE"),
        ({"bpe": Segmentation.subword_nmt, "bpe_model": "no"}, MissingInputError, "cannot read no"),
        (
            {"bpe": Segmentation.sentencepiece, "bpe_model": "cut.model"},
            UsageError,
            "give --srcdict MODEL without --bpe",
        ),
        (
            {"bpe": Segmentation.subword_nmt, "bpe_model": "cut.model", "srcdict": "bad", "tgtdict": "bad"},
            DataError,
            "cut.model is damaged: byte .* of the merge operations is not UTF-8",
        ),
        (
            {"bpe": Segmentation.subword_nmt, "bpe_model": "bad", "srcdict": "bad", "tgtdict": "bad"},
            DataError,
            "bad is damaged: line 1 of the merge operations is not two symbols: 'th'",
        ),
        (
            {"bpe": Segmentation.subword_nmt, "bpe_model": "codes", "srcdict": "counted", "tgtdict": "counted"},
            DataError,
            "counted: 'the 9' contains a space, but tokens cannot",
        ),
        (
            {"bpe": Segmentation.subword_nmt, "bpe_model": "codes", "trainpref": None, "testpref": "valid"},
            UsageError,
            "tokens are counted in the training text: give --trainpref",
        ),
    ],
)
def test_what_is_missing_is_said(
    text: Text, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    monkeypatch.chdir(text.folder)
    with pytest.raises(kind, match=says):
        text.make(**options)
    assert not (text.folder / "corpus").exists()

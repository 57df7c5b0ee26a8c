"""Vocabularies, models and merge operations with damage at random: refused in a sentence, or read as a slow reading does.

A sentencepiece model has no checksum, so another one may come out; it must not crash, and cut and join all text.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config.choices import Segmentation
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.imported.vocabularies import read_fairseq_dictionary, read_huggingface_vocabulary, read_marian_vocabulary
from nmt.data.tokenizers import Tokenizer, sentencepiece_files
from nmt.data.tokenizers.piece_lists import CharBuilder, CharConfig, WordsBuilder, WordsConfig
from nmt.data.tokenizers.sentencepiece import (
    BpeConfig,
    Normalization,
    SentencePieceBuilder,
    SentencePieceConfig,
    UnigramConfig,
)
from nmt.data.vocabulary import SPECIALS
from nmt.errors import NMTError, UsageError
from nmt.preprocessing.tokenization import segmented_pair
from tests.faults.mutations import in_a_child, mutations
from tests.faults.parallel_task import SOURCE

PIECES = ["the", "house", "\u2581old", "tr", "ee", "@@", "gr\u00fcn", "\u56db", "#", ".", "\u2028x", "12", "a"]
CODES = "#version: 0.2\nt h\nth e</w>\no u\nou s\ne r</w>\n\u00fc n\n"
# One of each kind that a normalizer may rewrite, and what no piece has.
EVERY_SCRIPT = ["".join(map(chr, range(begin, begin + 256))) for begin in range(0, 0x3400, 256) if begin]
EVERY_SCRIPT += [
    "\ufb01\uff21\u2460\ud55c\uac00 \U0001f600\U000e0001",
    "e\u0301a\u0308\u1100\u1161",
    "x" * 3000,
    "",
    " ",
]


def slow_words(content: bytes) -> list[str]:
    return [line for line in (line.split(" ")[0] for line in slow_lines(content)) if line not in SPECIALS]


def slow_characters(content: bytes) -> list[str]:
    return [line[0] for line in slow_lines(content) if line not in SPECIALS]


def slow_dictionary(content: bytes) -> list[str]:
    lines = [line.rstrip().removesuffix(" #fairseq:overwrite") for line in slow_lines(content, mark=False)]
    found = [line.rpartition(" ")[0] for line in lines]
    return [piece for number, piece in enumerate(found) if piece not in found[number + 1 :]]


def slow_pieces(content: bytes) -> list[str]:
    """With their counts, or without them."""
    if b" " in content:
        return slow_dictionary(content)
    return [line for line in slow_lines(content, mark=False) if line not in SPECIALS]


def slow_lines(content: bytes, mark: bool = True) -> list[str]:
    """``mark``: a byte-order mark is none of the text."""
    lines = (content.removeprefix(b"\xef\xbb\xbf") if mark else content).decode().split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def slow_mapping(content: bytes) -> list[str]:
    """Marian's own file line by line; for the library U+2028 ends a line."""
    try:
        tree = {}
        for line in filter(str.strip, content.decode().split("\n")):
            piece, _, number = line.rpartition(":")
            tree[json.loads(piece)] = int(number)
    except ValueError:
        tree = yaml.load(content.decode(), yaml.BaseLoader)
    return [piece for _, piece in sorted((int(number), piece) for piece, number in tree.items())]


def slow_object(content: bytes) -> list[str]:
    """A byte-order mark before the object is not part of it."""
    mapping = json.loads(content.decode("utf-8-sig"))
    return [piece for _, piece in sorted((number, piece) for piece, number in mapping.items())]


def given_to_bpe(path: Path) -> list[str]:
    """As ``--bpe subword_nmt --srcdict FILE`` reads it."""
    codes = path.parent / "sound"
    codes.write_text(CODES, encoding="utf-8")
    config = PreprocessConfig("en", "de", bpe=Segmentation.subword_nmt, bpe_model=str(codes), srcdict=str(path))
    config.joined_dictionary = True
    return [*segmented_pair(config, None).source.vocabulary.pieces[len(SPECIALS) :]]


def merges(path: Path) -> list[tuple[str, str]]:
    """The operations, through a tokenizer that uses them."""
    (path.parent / "pieces").write_text("a\nb\n", encoding="utf-8")
    config = PreprocessConfig("en", "de", bpe=Segmentation.subword_nmt, bpe_model=str(path), joined_dictionary=True)
    config.srcdict = str(path.parent / "pieces")
    tokenizer: Any = segmented_pair(config, None).source
    use(tokenizer)
    return [*tokenizer._ranks]


def slow_merges(content: bytes) -> list[tuple[str, str]]:
    first, *lines = [line.strip("\r ") for line in content.decode().rstrip("\n").split("\n")]
    lines = lines if first.strip() in ("#version: 0.2", "#version: 0.1") else [first, *lines]
    pairs = [(line.split(" ")[0], line.split(" ")[1]) for line in lines]
    return [*dict.fromkeys(pairs)]


@dataclass(frozen=True)
class Kind:
    """Of a file, and how it is read; ``slow`` raises where reading must be refused."""

    name: str
    content: str
    read: Callable[[Path], Any]
    slow: Callable[[bytes], Any]

    def __str__(self) -> str:
        return self.name


def pieces_of(builder: Any) -> Callable[[Path], list[str]]:
    def read(path: Path) -> list[str]:
        return [*builder.from_file(path).vocabulary.pieces[len(SPECIALS) :]]

    return read


COUNTED = "".join(f"{piece} {100 - number}\n" for number, piece in enumerate(PIECES))
MAPPING = "".join(f'"{piece}": {number}\n' for number, piece in enumerate(["</s>", "<unk>", *PIECES]))
JSON = "{" + ", ".join(MAPPING.split("\n")[:-1]) + "}"
KINDS = [
    Kind("words.txt", "".join(f"{piece}\n" for piece in PIECES), pieces_of(WordsBuilder(WordsConfig())), slow_words),
    Kind("dict.txt", COUNTED, pieces_of(WordsBuilder(WordsConfig())), slow_words),
    Kind("characters.txt", "a\n\u00e4\n \n\u56db 3\n#\n", pieces_of(CharBuilder(CharConfig())), slow_characters),
    Kind("dict.fairseq.txt", COUNTED, lambda path: read_fairseq_dictionary(path)[4:], slow_dictionary),
    Kind("dict.bpe.txt", COUNTED, given_to_bpe, slow_pieces),
    Kind("vocab.yml", MAPPING, read_marian_vocabulary, slow_mapping),
    Kind("vocab.json", JSON, read_huggingface_vocabulary, slow_object),
    Kind("codes", CODES, merges, slow_merges),
]


def check_lists(folder: Path, kind: Kind, seed: int, number: int, note: Callable[[object], None]) -> None:
    path, read = folder / kind.name, 0
    path.write_text(kind.content, encoding="utf-8")
    assert kind.read(path) == kind.slow(path.read_bytes())
    for count, content in enumerate(mutations(kind.content.encode(), seed, number)):
        note(f"mutation {count}: {content!r}")
        path.write_bytes(content)
        try:
            found = kind.read(path)
        except NMTError as error:
            assert str(path) in str(error) or not content, error
            continue
        assert found == kind.slow(content)
        read += 1
    assert read > 0


def use(tokenizer: Tokenizer) -> None:
    """Cuts and joins text of all scripts, and every piece alone; draws other pieces where it can."""
    ids = [one.tolist() for one in tokenizer.encode(SOURCE + EVERY_SCRIPT)]
    size = len(tokenizer.vocabulary)
    assert all(0 <= number < size for one in ids for number in one)
    for one in [*ids, *([number] for number in range(size))]:
        text = tokenizer.decode(one)
        assert len(text.splitlines()) <= 1 and text.encode() is not None
        tokenizer.pieces(one)
    for line in SOURCE[:3]:
        tokenizer.surfaces(line)
        tokenizer.decode_with([4, 1, 4] if size > 4 else [1], ["unknown"])
    for draw in (lambda: tokenizer.bpe_dropout(0.3), lambda: tokenizer.unigram_sampling(0.5)):
        with contextlib.suppress(UsageError):
            draw()


def quickly_survives(path: Path) -> bool:
    """What the product does in a new process, in a copy of this one: starting Python takes longer than all the rest."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.argv = ["-c", str(path)]
            exec(sentencepiece_files._CHECK, {})
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def check_models(model: bytes, folder: Path, config: SentencePieceConfig, seed: int, number: int, note: Any) -> None:
    sentencepiece_files._survives = quickly_survives
    for count, content in enumerate(mutations(model, seed, number)):
        note(f"mutation {count} of {config} with seed {seed}")
        path = folder / "damaged.model"
        path.write_bytes(content)
        try:
            use(SentencePieceBuilder(config).from_file(path))
        except NMTError as error:
            assert str(path) in str(error), error


@pytest.fixture(scope="module")
def models() -> dict[type[SentencePieceConfig], bytes]:
    lines = [f"{line} {word}" for line in SOURCE for word in ("gr\u00fcn", "\u56db\u4e94", "\u0430\u0431\u0432")]
    made = {}  # the rules of NFKC are nearly all of a small model; without them its pieces are
    plain = Normalization.identity
    for config in (BpeConfig(hard_vocab_limit=False), UnigramConfig(hard_vocab_limit=False, normalization=plain)):
        tokenizer: Any = SentencePieceBuilder(config).train(lines, 1)
        made[type(config)] = tokenizer.model_bytes()
    return made


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_damaged_list_is_refused_or_read_as_it_is(kind: Kind, tmp_path: Path) -> None:
    wrong = in_a_child(lambda note: check_lists(tmp_path, kind, 1, 80, note), tmp_path / "report")
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_much_damaged_list_is_refused_or_read_as_it_is(kind: Kind, tmp_path: Path) -> None:
    wrong = in_a_child(lambda note: check_lists(tmp_path, kind, 2, 1000, note), tmp_path / "report")
    assert not wrong, wrong


@pytest.mark.parametrize("config", [BpeConfig(), UnigramConfig()], ids=lambda one: one.model_type)
def test_a_damaged_model_is_refused_or_cuts_text(config: SentencePieceConfig, models: Any, tmp_path: Path) -> None:
    wrong = in_a_child(
        lambda note: check_models(models[type(config)], tmp_path, config, 1, 30, note), tmp_path / "report"
    )
    assert not wrong, wrong


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("config", [BpeConfig(), UnigramConfig()], ids=lambda one: one.model_type)
def test_a_much_damaged_model_is_refused_or_cuts_text(
    config: SentencePieceConfig, seed: int, models: Any, tmp_path: Path
) -> None:
    wrong = in_a_child(
        lambda note: check_models(models[type(config)], tmp_path, config, seed, 300, note), tmp_path / "report"
    )
    assert not wrong, wrong

"""Tokenizers with a plain list of tokens: words and characters."""

from __future__ import annotations

import json
import logging
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from nmt.config.checks import require_positive
from nmt.config.choices import InvalidText
from nmt.config.option import ShortRepr, flag, option
from nmt.data.text.lines import Reading, one_line, require_text
from nmt.data.text.piece_marks import joined
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints, Vocabulary
from nmt.errors import DataError, UsageError
from nmt.storage.foreign import is_dictionary_of_fairseq
from nmt.storage.reading import read_json

UNKNOWN_MARK = "\u2047"  # a double question mark, as sentencepiece shows it

_NOTHING = -1  # the empty word between two spaces

logger = logging.getLogger("nmt.data.tokenizers")


def write_pieces(path: Path, vocabulary: Vocabulary) -> None:
    """Write the tokens in the order of their ids, without special ones."""
    known = vocabulary.pieces[len(SPECIALS) :]
    path.write_text(json.dumps(known, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def read_pieces(path: Path) -> list[str]:
    """Read the file of ``write_pieces``."""
    pieces = read_json(path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise DataError(f"{path} is damaged: it should be a list of tokens")
    if len(set(pieces)) != len(pieces):
        raise DataError(f"{path} is damaged: '{Counter(pieces).most_common(1)[0][0]}' occurs twice")
    return pieces


@dataclass
class PieceListConfig(ShortRepr):
    """Selection of the tokens of the training text."""

    vocab_size: int | None = flag(None, help="Vocabulary size including the four special tokens; null: no limit")
    min_count: int = flag(1, help="Minimum number of occurrences of a token in the training text")
    multiple: int = option(
        1,
        help="Required divisor of the vocabulary size; unused tokens pad it",
        flag="--vocab-multiple",
    )

    def __post_init__(self) -> None:
        require_positive("tokenizer", vocab_size=self.vocab_size, min_count=self.min_count, multiple=self.multiple)
        if self.vocab_size is not None and self.vocab_size <= len(SPECIALS):
            raise UsageError(
                f"tokenizer.vocab_size={self.vocab_size} leaves no room after the {len(SPECIALS)} special tokens; raise it"
            )


class PieceListTokenizer(Tokenizer):
    """Cuts text without a model and without normalization; a token is known or unknown."""

    def __init__(self, config: PieceListConfig, pieces: Iterable[str]) -> None:
        self.config = config
        self.vocabulary = Vocabulary(pieces)

    @staticmethod
    @abstractmethod
    def split(line: str) -> Sequence[str]:
        """Cut a line into tokens."""

    @staticmethod
    @abstractmethod
    def join(pieces: Iterable[str]) -> str:
        """Join tokens to a line."""

    def encode(self, lines: Sequence[str]) -> list[Ints]:
        require_text(lines)
        return [np.array(list(map(self.vocabulary.id, self.split(line))), dtype=np.int64) for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_with(ids, [UNKNOWN_MARK] * list(ids).count(UNK))

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        words = iter(unknown)
        textual = (int(number) for number in ids if number not in (PAD, BOS, EOS))
        return one_line(self.join(self.vocabulary.pieces[i] if i != UNK else next(words) for i in textual))

    def surfaces(self, line: str) -> list[str]:
        return list(self.split(line))

    def save(self, folder: Path, stem: str) -> None:
        write_pieces(folder / f"{stem}.json", self.vocabulary)


class PieceListBuilder(TokenizerBuilder):
    """Counts tokens, or reads a list of them."""

    tokenizer: type[PieceListTokenizer]
    listed: re.Pattern[str]  # a line of a list, with an optional count
    what: str  # the token in messages

    def __init__(self, config: PieceListConfig) -> None:
        self._config = config

    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        """Take the most frequent tokens, equally frequent ones in alphabetical order. Nothing is random."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(self.tokenizer.split(line))
        frequent = [piece for piece, count in counts.items() if count >= self._config.min_count]
        if not frequent:
            raise UsageError(
                f"no {self.what} of the training text occurs tokenizer.min_count={self._config.min_count} times; "
                f"lower --min-count, or check the training files"
            )
        frequent.sort(key=lambda piece: (-counts[piece], piece))
        room = None if self._config.vocab_size is None else self._config.vocab_size - len(SPECIALS)
        kept = frequent[:room]
        missing = -(len(SPECIALS) + len(kept)) % self._config.multiple
        return self.tokenizer(self._config, [*kept, *(f"<unused {number}>" for number in range(missing))])

    def load(self, folder: Path, stem: str) -> Tokenizer:
        return self.tokenizer(self._config, read_pieces(folder / f"{stem}.json"))

    def from_file(self, path: Path) -> Tokenizer:
        """Read a token from each line, with an optional space and count as in fairseq; the order gives the ids."""
        lines: dict[str, int] = {}
        for number, line in enumerate(Reading(InvalidText.skip).lines(path, quiet=True), start=1):
            if line is None:
                raise DataError(
                    f"{path}:{number}: bytes that are not UTF-8; convert the list first, with iconv -t UTF-8"
                )
            match = self.listed.fullmatch(line)
            if match is None and line not in SPECIALS:
                raise DataError(f"{path}:{number}: {line!r} must be one {self.what}, or one {self.what} and its count")
            piece = line if match is None or line in SPECIALS else match[1]
            if piece in lines:
                raise DataError(f"{path}:{number}: {piece!r} is already in line {lines[piece]}; delete one of them")
            lines[piece] = number
        if not lines:
            raise DataError(f"{path} is empty")
        if is_dictionary_of_fairseq(path):
            logger.info(f"{path} is a fairseq dictionary: its tokens keep their order, its counts are ignored")
        specials = [special for special in SPECIALS if lines.pop(special, 0)]
        if specials:
            logger.warning(f"{path}: {' '.join(specials)} dropped from the list; special tokens have fixed ids")
        return self.tokenizer(self._config, lines)


@dataclass
class CharConfig(PieceListConfig):
    """One token for each character."""


class CharTokenizer(PieceListTokenizer):
    """Decoding restores the encoded text exactly if its characters are known."""

    @staticmethod
    def split(line: str) -> Sequence[str]:
        return line

    @staticmethod
    def join(pieces: Iterable[str]) -> str:
        return "".join(pieces)


@tokenizers.register("char", CharConfig)
class CharBuilder(PieceListBuilder):
    tokenizer = CharTokenizer
    listed = re.compile(r"(.)(?: \d+)?", re.DOTALL)
    what = "character"


@dataclass
class WordsConfig(PieceListConfig):
    """One token for each word."""


class WordTokenizer(PieceListTokenizer):
    """Only the space U+0020 separates words; a tab or a no-break space is part of its word.

    Each token of text that was cut before is a word until it is decoded.
    """

    keeps_pieces = True

    def encode_flat(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        """Encode all lines at once, separated by line feeds, which no line contains."""
        require_text(lines)
        words = " \n ".join([*lines, ""]).split(" ")
        numbers = np.fromiter(map(self._numbers.get, words, repeat(UNK)), dtype=np.int64, count=len(words))
        tokens = numbers[numbers != _NOTHING]
        return tokens, np.diff(np.flatnonzero(tokens == EOS), prepend=-1)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The ids of words, of line feeds and of empty words."""
        words = {word: number for number, word in enumerate(self.vocabulary.pieces) if number >= len(SPECIALS)}
        return words | {"\n": EOS, "": _NOTHING}

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        return joined(super().decode_with(ids, unknown), self.marks)

    @staticmethod
    def split(line: str) -> Sequence[str]:
        return [word for word in line.split(" ") if word]

    @staticmethod
    def join(pieces: Iterable[str]) -> str:
        return " ".join(pieces)


@tokenizers.register("words", WordsConfig)
class WordsBuilder(PieceListBuilder):
    tokenizer = WordTokenizer
    listed = re.compile(r"([^ ]+)(?: \d+)?")
    what = "word"

"""Tokenizers with a plain list of pieces: counting, storing and reading the list; words and characters."""

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
from typing import Any

import numpy as np

from nmt.config.checks import require_positive
from nmt.config.choices import InvalidText
from nmt.config.option import flag, option
from nmt.data.text import Reading, joined, one_line, require_text
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints, Vocabulary
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.foreign import is_dictionary_of_fairseq

UNKNOWN_MARK = "\u2047"  # a double question mark, as sentencepiece shows it

_NOTHING = -1  # stands between two spaces

logger = logging.getLogger("nmt.data.tokenizers")


def write_pieces(path: Path, vocabulary: Vocabulary) -> None:
    """The pieces without the specials, in their order."""
    known = vocabulary.pieces[len(SPECIALS) :]
    path.write_text(json.dumps(known, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def read_pieces(path: Path) -> list[str]:
    """What ``write_pieces`` wrote."""
    try:
        pieces: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error})") from None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise DataError(f"{path} is damaged: it should be a list of pieces")
    if len(set(pieces)) != len(pieces):
        raise DataError(f"{path} is damaged: '{Counter(pieces).most_common(1)[0][0]}' occurs twice")
    return pieces


@dataclass
class PieceListConfig:
    """Which pieces of the training text are known."""

    vocab_size: int | None = flag(
        None, help="size of the vocabulary, the four special entries included; null: no limit"
    )
    min_count: int = flag(1, help="how often a piece must occur to be known")
    multiple: int = option(
        1,
        help="the size of the vocabulary is raised to a multiple of this by pieces that no text has",
        flag="--vocab-multiple",
    )

    def __post_init__(self) -> None:
        require_positive("tokenizer", vocab_size=self.vocab_size, min_count=self.min_count, multiple=self.multiple)
        if self.vocab_size is not None and self.vocab_size <= len(SPECIALS):
            raise UsageError(
                f"tokenizer.vocab_size={self.vocab_size} leaves no room beside the {len(SPECIALS)} special entries"
            )


class PieceListTokenizer(Tokenizer):
    """Cuts text without a model; a piece is known or unknown. Text is taken as it is: no normalisation."""

    def __init__(self, config: PieceListConfig, pieces: Iterable[str]) -> None:
        self.config = config
        self.vocabulary = Vocabulary(pieces)

    @staticmethod
    @abstractmethod
    def split(line: str) -> Sequence[str]:
        """The pieces of a line."""

    @staticmethod
    @abstractmethod
    def join(pieces: Iterable[str]) -> str:
        """The line of these pieces."""

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
    """Counts pieces, or reads a list of them."""

    tokenizer: type[PieceListTokenizer]
    listed: re.Pattern[str]  # a line of a given list, its count taken off
    what: str  # how a piece is called in messages

    def __init__(self, config: PieceListConfig) -> None:
        self._config = config

    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        """The most frequent pieces, equally frequent ones in alphabetical order. Nothing is random here."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(self.tokenizer.split(line))
        frequent = [piece for piece, count in counts.items() if count >= self._config.min_count]
        if not frequent:
            raise UsageError(
                f"no {self.what} of the training text occurs tokenizer.min_count={self._config.min_count} times; "
                f"lower --min-count, or look into the training files"
            )
        frequent.sort(key=lambda piece: (-counts[piece], piece))
        room = None if self._config.vocab_size is None else self._config.vocab_size - len(SPECIALS)
        kept = frequent[:room]
        missing = -(len(SPECIALS) + len(kept)) % self._config.multiple
        return self.tokenizer(self._config, [*kept, *(f"<unused {number}>" for number in range(missing))])

    def load(self, folder: Path, stem: str) -> Tokenizer:
        return self.tokenizer(self._config, read_pieces(folder / f"{stem}.json"))

    def given(self, path: Path) -> Tokenizer:
        """One piece a line, optionally followed by a space and its count (fairseq's form); the order gives the ids."""
        lines: dict[str, int] = {}
        for number, line in enumerate(Reading(InvalidText.skip).lines(path, quiet=True), start=1):
            if line is None:
                raise DataError(
                    f"{path}:{number}: bytes that are not UTF-8; convert the list first, with iconv -t UTF-8"
                )
            match = self.listed.fullmatch(line)
            if match is None and line not in SPECIALS:
                raise DataError(f"{path}:{number}: {line!r} is not one {self.what}, or one {self.what} and its count")
            piece = line if match is None or line in SPECIALS else match[1]
            if piece in lines:
                raise DataError(f"{path}:{number}: {piece!r} stands in line {lines[piece]} already; each piece once")
            lines[piece] = number
        if not lines:
            raise DataError(f"{path} is empty")
        if is_dictionary_of_fairseq(path):
            logger.info(
                f"{path} is a dictionary as fairseq writes it: its pieces are taken in its order, its counts are not"
            )
        specials = [special for special in SPECIALS if lines.pop(special, 0)]
        if specials:
            logger.warning(f"{path}: {' '.join(specials)} left out of the list; specials have ids of their own")
        return self.tokenizer(self._config, lines)


@dataclass
class CharConfig(PieceListConfig):
    """One piece a character."""


class CharTokenizer(PieceListTokenizer):
    """Decoding gives back exactly the text that was encoded, as far as its characters are known."""

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
    """One piece a word."""


class WordTokenizer(PieceListTokenizer):
    """Only the space U+0020 separates; a tab or a no-break space belongs to its word. Of text that was cut before, each
    piece is a word here until it is decoded."""

    keeps_pieces = True

    def encode_flat(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        """All lines at once. A line has no line feed: between spaces it says where one ends."""
        require_text(lines)
        words = " \n ".join([*lines, ""]).split(" ")
        found = np.fromiter(map(self._numbers.get, words, repeat(UNK)), dtype=np.int64, count=len(words))
        tokens = found[found != _NOTHING]
        return tokens, np.diff(np.flatnonzero(tokens == EOS), prepend=-1)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """What stands between spaces, as numbers."""
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

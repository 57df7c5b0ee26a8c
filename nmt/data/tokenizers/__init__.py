"""Tokenizers: text to tokens and back, each with its vocabulary. No torch here."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nmt.config.choices import PieceMarks
from nmt.data.text.lines import one_line, visible_spaces
from nmt.data.text.words import Span, spans_of_texts
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.vocabulary import EOS, UNK, Ints, Vocabulary
from nmt.errors import UsageError
from nmt.registry import Registry, import_all


class Tokenizer(ABC):
    """The tokenizer of one side, or of both. Ids 0-3 are pad, unk, bos, eos; see ``Vocabulary``."""

    config: Any  # the registered configuration that it was built from, stored with the model
    vocabulary: Vocabulary
    keeps_pieces: ClassVar[bool] = False  # words are tokens, so tokens of text that was cut before are kept
    marks: PieceMarks = PieceMarks.none  # of text that was cut before; decoding joins such tokens

    def joining(self, marks: PieceMarks) -> Tokenizer:
        """Return the tokenizer for text that was cut with these marks; unchanged unless it keeps tokens."""
        if not self.keeps_pieces:
            return self
        other = copy.copy(self)
        other.marks = marks
        return other

    @abstractmethod
    def encode(self, lines: Sequence[str]) -> list[Ints]:
        """Return the ids of each line, without bos and eos. The spelling of a special token ("</s>") is text."""

    def encode_flat(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        """Return the ids of all lines in one array, each line ending in eos, and their lengths.

        Some tokenizers are faster this way.
        """
        sentences = self.encode(lines)
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences)) + 1
        tokens = np.full(int(lengths.sum()), EOS, dtype=np.int64)
        text = np.ones(len(tokens), dtype=bool)
        text[np.cumsum(lengths) - 1] = False
        tokens[text] = np.concatenate([np.zeros(0, dtype=np.int64), *sentences])
        return tokens, lengths

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return text on one line, without special tokens; an unknown token becomes a visible mark."""

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        """Decode, with one of the words ``unknown`` for each unknown id."""
        ids, texts, begin = list(ids), list[str](), 0
        for word in unknown:
            end = ids.index(UNK, begin)
            texts += [self.decode(ids[begin:end]).strip(), one_line(word)]
            begin = end + 1
        return " ".join(filter(None, [*texts, self.decode(ids[begin:]).strip()]))

    def surfaces(self, line: str) -> list[str]:
        """Return the text of each token of a line, also of unknown ones."""
        return self.pieces(self.encode([line])[0].tolist())

    def spans(self, line: str) -> list[Span]:
        """Return the span in a line of each of its tokens."""
        return spans_of_texts(line, self.surfaces(line))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a token for each id, special ones too, without white space: for H- lines, alignments and plots."""
        return [visible_spaces(self.vocabulary.pieces[number]) for number in ids]

    def bpe_dropout(self, dropout: float) -> Sampler:
        """Return a sampler of tokens that drops merges with this probability."""
        raise self._cannot("variation.bpe_dropout (--bpe-dropout)", "byte-pair encoding", "bpe")

    def unigram_sampling(self, alpha: float) -> Sampler:
        """Return a sampler of segmentations by their probabilities to the power ``alpha``."""
        raise self._cannot("variation.unigram_alpha (--unigram-alpha)", "a unigram model", "unigram")

    def _cannot(self, option: str, kind: str, example: str) -> UsageError:
        has = f"the corpus has tokenizer={tokenizers.name_of(type(self.config))}"
        return UsageError(
            f"{option} needs tokens of {kind}, but {has}; omit it, or make the corpus with tokenizer={example}"
        )

    @abstractmethod
    def save(self, folder: Path, stem: str) -> None:
        """Write files ``stem.*``, such as ``source.model``, for ``load``."""


class TokenizerBuilder(ABC):
    """Trains or loads tokenizers of one kind; registered by the kind's name."""

    trains: ClassVar[bool] = True  # False: only imported models have its tokenizers

    @abstractmethod
    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        """Learn a tokenizer from text. ``lines`` may be iterated once."""

    @abstractmethod
    def load(self, folder: Path, stem: str) -> Tokenizer:
        """Read the files that ``save`` wrote; a damaged file is a DataError with its name."""

    @abstractmethod
    def from_file(self, path: Path) -> Tokenizer:
        """Make a tokenizer from a user's vocabulary or model file (--srcdict)."""


# builder(config) -> TokenizerBuilder
tokenizers: Registry[TokenizerBuilder] = Registry("tokenizer")


def trainable() -> list[str]:
    """Return the names of the tokenizers that can be learned from text. A plug-in's builder may be a function."""
    builders = {name: tokenizers.builder(tokenizers.config_class(name)) for name in tokenizers.names()}
    return [name for name, builder in builders.items() if getattr(builder, "trains", True)]


import_all(__name__, __path__)

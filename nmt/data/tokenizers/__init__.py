"""Tokenizers: text to pieces and back, each with its vocabulary. No torch here."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nmt.config.choices import PieceMarks
from nmt.data.text import one_line, visible_spaces
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.vocabulary import EOS, UNK, Ints, Vocabulary
from nmt.data.words import Span, spans_of_texts
from nmt.errors import UsageError
from nmt.registry import Registry, import_all


class Tokenizer(ABC):
    """One side's (or the joint) tokenizer, trained or loaded. Ids 0-3 are pad, unk, bos, eos; see ``Vocabulary``."""

    config: Any  # the registered configuration that it was built from, stored with the model
    vocabulary: Vocabulary
    keeps_pieces: ClassVar[bool] = False  # what stands between spaces stays whole, so pieces of text cut before do
    marks: PieceMarks = PieceMarks.none  # with which its text was cut before; decoding joins such pieces

    def joining(self, marks: PieceMarks) -> Tokenizer:
        """The same for text that was cut with these marks; itself where pieces do not stay whole."""
        if not self.keeps_pieces:
            return self
        other = copy.copy(self)
        other.marks = marks
        return other

    @abstractmethod
    def encode(self, lines: Sequence[str]) -> list[Ints]:
        """Ids of each line, without bos and eos. The text of a special ("</s>") is text."""

    def encode_flat(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        """The same ids as a corpus has them: line by line in one array, each line ending in eos; and their lengths. For
        much text, which some tokenizers cut faster so."""
        sentences = self.encode(lines)
        lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences)) + 1
        tokens = np.full(int(lengths.sum()), EOS, dtype=np.int64)
        text = np.ones(len(tokens), dtype=bool)
        text[np.cumsum(lengths) - 1] = False
        tokens[text] = np.concatenate([np.zeros(0, dtype=np.int64), *sentences])
        return tokens, lengths

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text on one line; specials are left out, unknown becomes a visible mark."""

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        """The same, with one of ``unknown`` in place of each unknown id."""
        ids, texts, begin = list(ids), list[str](), 0
        for word in unknown:
            end = ids.index(UNK, begin)
            texts += [self.decode(ids[begin:end]).strip(), one_line(word)]
            begin = end + 1
        return " ".join(filter(None, [*texts, self.decode(ids[begin:]).strip()]))

    def surfaces(self, line: str) -> list[str]:
        """What of a line each of its pieces stands for, of unknown ones too."""
        return self.pieces(self.encode([line])[0].tolist())

    def spans(self, line: str) -> list[Span]:
        """Where in a line the text of each of its pieces stands."""
        return spans_of_texts(line, self.surfaces(line))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One piece for each id, specials too, without white space: for H- lines, alignments and plots."""
        return [visible_spaces(self.vocabulary.pieces[number]) for number in ids]

    def bpe_dropout(self, dropout: float) -> Sampler:
        """Draws pieces of which some merges are left out."""
        raise self._cannot("variation.bpe_dropout (--bpe-dropout)", "byte-pair encoding", "bpe")

    def unigram_sampling(self, alpha: float) -> Sampler:
        """Draws segmentations by their probabilities to the power ``alpha``."""
        raise self._cannot("variation.unigram_alpha (--unigram-alpha)", "a unigram model", "unigram")

    def _cannot(self, option: str, kind: str, example: str) -> UsageError:
        has = f"the corpus has others (tokenizer={tokenizers.name_of(type(self.config))})"
        return UsageError(
            f"{option} needs pieces of {kind}, and {has}; leave it out, or make the corpus with tokenizer={example}"
        )

    @abstractmethod
    def save(self, folder: Path, stem: str) -> None:
        """Write ``stem.*`` files (say ``source.model``) from which ``load`` rebuilds it."""


class TokenizerBuilder(ABC):
    """What a registry entry builds: trains or loads tokenizers of one kind."""

    trains: ClassVar[bool] = True  # False: its tokenizers come with imported models only

    @abstractmethod
    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        """Learn pieces from text. ``lines`` may be iterated once."""

    @abstractmethod
    def load(self, folder: Path, stem: str) -> Tokenizer:
        """Read what ``save`` wrote; a damaged file is a DataError that names it."""

    @abstractmethod
    def given(self, path: Path) -> Tokenizer:
        """A tokenizer from a user's own vocabulary or model file (--srcdict)."""


# builder(config) -> TokenizerBuilder
tokenizers: Registry[TokenizerBuilder] = Registry("tokenizer")


def trainable() -> list[str]:
    """The names of the tokenizers that can be learned from text. A plug-in's builder may be a function."""
    builders = {name: tokenizers.builder(tokenizers.config_class(name)) for name in tokenizers.names()}
    return [name for name, builder in builders.items() if getattr(builder, "trains", True)]


import_all(__name__, __path__)

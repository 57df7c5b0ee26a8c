"""A sentencepiece model that cuts text, with a list of tokens that gives the ids.

Models of fairseq and Marian have such lists. The order differs from the model's, some of its tokens are absent, and there
may be others, such as fairseq's "madeupword0000" or the tokens of the other language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nmt.config.choices import WORD_START
from nmt.config.option import ShortRepr, option
from nmt.data.text.lines import one_line, require_text
from nmt.data.text.words import Span
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.imported import ImportedBuilder
from nmt.data.tokenizers.piece_lists import read_pieces, write_pieces
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.tokenizers.sentencepiece_files import damage_named, read_model
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints, Vocabulary

_LANGUAGE = re.compile(r">>.+?<<")  # the target language of OPUS-MT's multilingual models, before the text


@dataclass
class SentencePieceListConfig(ShortRepr):
    """A sentencepiece model with a separate list of tokens, of an imported model."""

    language_tokens: bool = option(
        False, help="Read a known language token such as >>deu<< at the beginning of a line as one token"
    )
    hide_others: bool = option(
        False, help="Omit from text the tokens that the sentencepiece model lacks, such as language tokens"
    )


def is_language_token(piece: str) -> bool:
    return _LANGUAGE.fullmatch(piece) is not None


class SentencePieceList(SentencePieceTokenizer):
    """Only tokens of the list are known, also a character that is unknown to the model."""

    def __init__(self, config: SentencePieceListConfig, model: bytes, pieces: Iterable[str]) -> None:
        """``pieces``: tokens by id, without special ones. An invalid ``model`` raises the library's error."""
        super().__init__(config, model)
        self._pieces: list[str] = self._model.id_to_piece(list(range(self._model.vocab_size())))
        self.vocabulary = Vocabulary(pieces)
        self._ours = np.array([self.vocabulary.id(piece) for piece in self._pieces], dtype=np.int64)
        # The model decodes these letter by letter.
        self._foreign = frozenset(self.vocabulary.pieces).difference(self._pieces)
        self._hidden = {PAD, BOS, EOS}
        if config.hide_others:
            self._hidden.update(map(self.vocabulary.id, self._foreign - {*SPECIALS}))

    def encode(self, lines: Sequence[str]) -> list[Ints]:
        require_text(lines)
        split_lines = [self._split_token(line) for line in lines]
        theirs: list[list[int]] = self._model.encode([text for _, text in split_lines], num_threads=1)
        encoded = (self._ids(text, ids) for (_, text), ids in zip(split_lines, theirs))
        return [
            np.insert(ids, 0, self.vocabulary.id(token)) if token else ids
            for (token, _), ids in zip(split_lines, encoded)
        ]

    @cached_property
    def _cuts_words_apart(self) -> bool:
        """False with language tokens before the text."""
        return not self.config.language_tokens and super()._cuts_words_apart

    def _split_token(self, line: str) -> tuple[str, str]:
        """Return the language token at the beginning of a line, or "", and the text after it."""
        match = _LANGUAGE.match(line) if self.config.language_tokens else None
        if match is None or self.vocabulary.id(match[0]) == UNK:
            return "", line
        return match[0], line[match.end() :]

    def surfaces(self, line: str) -> list[str]:
        token, text = self._split_token(line)
        return [*filter(None, [token]), *super().surfaces(text)]

    def spans(self, line: str) -> list[Span]:
        token, text = self._split_token(line)
        of_text = [(begin + len(token), end + len(token)) for begin, end in super().spans(text)]
        return [*([(0, len(token))] if token else []), *of_text]

    def _ids(self, line: str, theirs: list[int]) -> Ints:
        if self._unknown not in theirs:
            return self._ours[np.array(theirs, dtype=np.int64)]
        written: list[str] = self._model.encode(line, out_type=str)  # unknown text unchanged
        return np.array([self.vocabulary.id(piece) for piece in written], dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        unknown = self._pieces[self._unknown]
        written = [
            unknown if number == UNK else self.vocabulary.pieces[number] for number in ids if number not in self._hidden
        ]
        text: str = self._model.decode(written) if written else ""
        if not self._foreign.isdisjoint(written):
            text = text.replace(WORD_START, " ").strip(" ")
        return one_line(text)

    def save(self, folder: Path, stem: str) -> None:
        super().save(folder, stem)
        write_pieces(folder / f"{stem}.json", self.vocabulary)


@tokenizers.register("sentencepiece_list", SentencePieceListConfig)
class SentencePieceListBuilder(ImportedBuilder):
    """Loads the model and the list."""

    def load(self, folder: Path, stem: str) -> Tokenizer:
        path = folder / f"{stem}.model"
        pieces = read_pieces(folder / f"{stem}.json")
        with damage_named(path):
            return SentencePieceList(self._config, read_model(path), pieces)

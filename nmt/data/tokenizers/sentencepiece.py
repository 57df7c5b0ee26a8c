"""Subword tokens learned from raw text with sentencepiece: byte-pair encoding and the unigram model.

Sennrich et al. 2016 (arXiv:1508.07909), Kudo 2018 (arXiv:1804.10959), Kudo and Richardson 2018 (arXiv:1808.06226).
"""

from __future__ import annotations

import io
import operator
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import sentencepiece

from nmt.config.choices import WORD_START
from nmt.config.option import ShortRepr, flag, option
from nmt.config.sections import require_positive
from nmt.data.text.lines import one_line, require_text
from nmt.data.text.words import Span
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers
from nmt.data.tokenizers.bpe_dropout import BpeDropout, Merges
from nmt.data.tokenizers.known_words import END, KnownWords
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.tokenizers.sentencepiece_files import damage_named, read_foreign_model, read_model
from nmt.data.tokenizers.unigram_sampling import UnigramSampling
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Flags, Ints, Vocabulary
from nmt.errors import DataError, UsageError
from nmt.storage.foreign import is_dictionary_of_fairseq

_THREADS = 4  # the trained model's bytes depend on their number: one for every machine
_FEWEST_LINES = 100  # sentencepiece refuses to sample fewer
# The trainer skips longer lines silently. With a higher limit it fails at very long words.
_LONGEST_LINE = 4192  # bytes
_LONGEST_CHARACTER = 4


class Normalization(Enum):
    """Rewriting of characters by sentencepiece; "cf" folds case."""

    nmt_nfkc = "nmt_nfkc"
    nfkc = "nfkc"
    nmt_nfkc_cf = "nmt_nfkc_cf"
    nfkc_cf = "nfkc_cf"
    identity = "identity"


@dataclass
class SentencePieceConfig(ShortRepr):
    """Training options of both kinds of models."""

    model_type: ClassVar[str]  # by sentencepiece's name

    vocab_size: int = flag(8000, help="Vocabulary size including the four special tokens")
    character_coverage: float = flag(
        1.0,
        help="Fraction of characters in the training text that tokens cover; 0.9995 for languages with "
        "thousands of characters",
    )
    normalization: Normalization = flag(
        Normalization.nmt_nfkc,
        help="Unicode normalization: nmt_nfkc, nfkc, nmt_nfkc_cf, nfkc_cf (cf: case folding) or identity",
    )
    byte_fallback: bool = flag(False, help="Spell unknown characters as bytes, so that no token is unknown")
    user_defined_symbols: list[str] = flag([], help="Strings that are always one token, such as placeholders or tags")
    hard_vocab_limit: bool = option(
        True, help="Require the exact vocabulary size; otherwise accept a smaller one if the text supports no more"
    )
    max_training_lines: int = flag(10_000_000, help="Maximum number of lines sampled for learning the vocabulary")

    def __post_init__(self) -> None:
        require_positive("tokenizer", vocab_size=self.vocab_size)
        for symbol in self.user_defined_symbols:
            if not symbol or len(symbol.split()) != 1 or symbol.strip() != symbol:
                raise UsageError(
                    f"tokenizer.user_defined_symbols: {symbol!r} is empty or contains a space; each symbol must be one word"
                )
        if self.max_training_lines <= _FEWEST_LINES:
            raise UsageError(
                f"tokenizer.max_training_lines={self.max_training_lines} must be more than {_FEWEST_LINES}"
            )
        if not 0.9 <= self.character_coverage <= 1.0:
            raise UsageError(f"tokenizer.character_coverage={self.character_coverage} must be between 0.9 and 1")


def _explained(config: SentencePieceConfig, message: str) -> str:
    """Translate the library's message to one that names the option to change."""
    size = config.vocab_size
    if match := re.search(r"Vocabulary size too high .*<= (\d+)", message):
        return (
            f"tokenizer.vocab_size={size} is more than this text supports: set --vocab-size {match[1]} or less, "
            f"or tokenizer.hard_vocab_limit=false to accept fewer tokens"
        )
    if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return (
            f"tokenizer.vocab_size={size} is less than the {match[1]} tokens that the characters of this text need: "
            f"raise --vocab-size, or lower tokenizer.character_coverage={config.character_coverage}"
        )
    return f"learning {size} tokens failed (tokenizer.vocab_size, --vocab-size): {message.strip()}"


def sampled(lines: Iterable[str], most: int, seed: int) -> Iterator[str]:
    """Yield a uniform sample of at most ``most`` lines, in their order.

    If ``__length_hint__`` shows that no sampling is needed, no line is kept in memory.
    """
    if operator.length_hint(lines, most + 1) <= most:
        yield from lines
        return
    chance, kept = random.Random(seed), list[tuple[int, str]]()
    for number, line in enumerate(lines):
        if number < most:
            kept.append((number, line))
        elif (place := chance.randrange(number + 1)) < most:
            kept[place] = number, line
    kept.sort(reverse=True)
    while kept:
        yield kept.pop()[1]


def _parts(line: str) -> Iterator[str]:
    """Yield a line, cut into parts if it is too long for the trainer, between words if possible."""
    size = _LONGEST_LINE // _LONGEST_CHARACTER
    if len(line) <= size or len(line.encode("utf-8", "surrogatepass")) <= _LONGEST_LINE:
        yield line
        return
    begin = 0
    while begin < len(line):
        space = line.rfind(" ", begin + 1, begin + size) if len(line) > begin + size else -1
        end = begin + size if space < 0 else space
        yield line[begin:end]
        begin = end


def _hidden(special: str) -> str:
    """Return a spelling of a special token that text does not contain.

    The trainer removes these spellings from the text, so with "</s>" the characters "<" and "/" might get no token.
    ``Vocabulary`` has its own special tokens, so this spelling is never shown.
    """
    return f"\ue000<{special}>\ue000"


@dataclass
class BpeConfig(SentencePieceConfig):
    """Byte-pair encoding."""

    model_type = "bpe"


@dataclass
class UnigramConfig(SentencePieceConfig):
    """The unigram language model."""

    model_type = "unigram"


class SentencePieceTokenizer(Tokenizer):
    """A sentencepiece model whose ids are renumbered: four special tokens, then the model's tokens of text in its order.

    The model's control symbols have no id, and text never becomes one: "</s>" in a sentence is four characters.
    """

    def __init__(self, config: Any, model: bytes) -> None:
        """``model``: the serialized sentencepiece model; an invalid one raises the library's error."""
        self.config = config
        self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        size = self._model.vocab_size()
        every = list(range(size))
        textual = ~np.array(
            [self._model.is_control(every), self._model.is_unknown(every), self._model.is_unused(every)]
        )
        self._theirs: Ints = np.flatnonzero(textual.all(axis=0))  # our id - 4 -> their id
        self.vocabulary = Vocabulary(self._model.id_to_piece(self._theirs.tolist()))
        self._ours: Ints = np.full(size, UNK, dtype=np.int64)  # their id -> our id
        self._ours[self._theirs] = np.arange(len(self._theirs)) + len(SPECIALS)
        self._unknown: int = self._model.unk_id()

    def encode(self, lines: Sequence[str]) -> list[Ints]:
        require_text(lines)
        # one thread: this process may be a fork of a parallel caller
        ids: list[list[int]] = self._model.encode(list(lines), num_threads=1)
        flat = self._ours[np.fromiter(chain.from_iterable(ids), dtype=np.int64)]
        ends = list(accumulate(map(len, ids), initial=0))
        return [flat[start:end] for start, end in pairwise(ends)]

    def encode_flat(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        return self._by_words(lines) or super().encode_flat(lines)

    def _by_words(self, lines: Sequence[str]) -> tuple[Ints, Ints] | None:
        """Encode by cached words; None if these lines need the model."""
        if not self._cuts_words_apart:
            return None
        require_text(lines)
        written: list[str] = self._model.normalize(list(lines))  # "a b" -> WORD_START a WORD_START b
        nothing, *words = f"{WORD_START}{END}".join([*written, ""]).split(WORD_START)
        tokens = self._known(words) if nothing == "" else None
        if tokens is None:
            return None
        lengths = np.diff(np.flatnonzero(tokens == EOS), prepend=-1)
        return (tokens, lengths) if len(lengths) == len(lines) else None

    @cached_property
    def _cuts_words_apart(self) -> bool:
        """Whether a line is always cut as its words are.

        No token contains a later space, and the space is known, so unknown characters of two words are not joined. The
        unigram model adds up the scores of a line, which depends on rounding.
        """
        every: list[str] = self._model.id_to_piece(list(range(self._model.vocab_size())))
        known = WORD_START in self.vocabulary.pieces
        return known and not any(WORD_START in piece[1:] for piece in every) and self.is_kind("bpe")

    @cached_property
    def _known(self) -> KnownWords:
        return KnownWords(self._cut_words)

    def _cut_words(self, words: Sequence[str]) -> list[Ints | None]:
        """Encode words; None for a word that normalization changes again when it is alone."""
        written: list[str] = self._model.normalize(list(words))
        stays = [WORD_START + word == now and END not in word for word, now in zip(words, written)]
        return [ids if sound else None for ids, sound in zip(self.encode(words), stays)]

    def decode(self, ids: Sequence[int]) -> str:
        theirs = [
            self._unknown if number == UNK else int(self._theirs[number - len(SPECIALS)])
            for number in ids
            if number not in (PAD, BOS, EOS)
        ]
        return one_line(self._model.decode(theirs)) if theirs else ""

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        """A word is placed like its token: after a space if the token before it is a space or begins a word."""
        ids, text, begin = list(ids), "", 0
        for word in unknown:
            end = ids.index(UNK, begin)
            text += self._after(text, ids[begin:end]) + word
            begin = end + 1
        return one_line(text + self._after(text, ids[begin:])).strip()

    def _after(self, text: str, ids: Sequence[int]) -> str:
        """Decode tokens after a text, with the initial space that sentencepiece removes."""
        decoded = self.decode(ids)
        spaced = text != "" and len(ids) > 0 and self.vocabulary.pieces[ids[0]].startswith(WORD_START)
        return f" {decoded}" if spaced and not decoded.startswith(" ") else decoded

    def surfaces(self, line: str) -> list[str]:
        pieces: list[str] = self._model.encode(line, out_type=str)
        return [piece.lstrip(WORD_START) for piece in pieces]

    def spans(self, line: str) -> list[Span]:
        """Return the library's spans, which track rewritten characters."""
        spans: list[Span] = self._model.encode(line, return_type="offset_mapping")["offsets"]
        return spans

    def bpe_dropout(self, dropout: float) -> Sampler:
        if not self.is_kind("bpe"):
            return super().bpe_dropout(dropout)
        scores = self.scores()
        parts = {piece: number for number, piece in enumerate(scores)}
        ranked = {  # two tokens merge if their concatenation is a token; the highest score is first
            (parts[piece[:end]], parts[piece[end:]]): (-score, parts[piece])
            for piece, score in scores.items()
            for end in range(1, len(piece))
            if piece[:end] in parts and piece[end:] in parts
        }
        merges = Merges(ranked, [self.vocabulary.id(piece) for piece in parts])
        spelled = [
            [parts[character] for character in piece] if piece in parts and parts.keys() >= set(piece) else []
            for piece in self.vocabulary.pieces
        ]
        return BpeDropout(self._begins_word(), spelled, merges, dropout)

    def unigram_sampling(self, alpha: float) -> Sampler:
        if not self.is_kind("unigram"):
            return super().unigram_sampling(alpha)
        return UnigramSampling(self._begins_word(), self.vocabulary.pieces, self.scores(), alpha)

    def _begins_word(self) -> Flags:
        return np.array([piece.startswith(WORD_START) for piece in self.vocabulary.pieces])

    def is_kind(self, kind: str) -> bool:
        """Whether the model is of this kind; a user's model may differ from the options.

        The library samples from two kinds, and lists the best segmentations of one of them.
        """
        try:
            self._model.sample_encode_as_ids("a", nbest_size=-1, alpha=0.5)
        except RuntimeError:
            return False
        try:
            self._model.nbest_encode_as_ids("a", nbest_size=2)
        except RuntimeError:
            return kind == "bpe"
        return kind == "unigram"

    def scores(self) -> dict[str, float]:
        """Return the scores of tokens that may be cut differently: neither bytes nor user-defined symbols."""
        theirs = [number for number in self._theirs.tolist() if not self._model.is_byte(number)]
        scored = zip(theirs, self._model.id_to_piece(theirs), self._model.get_score(theirs))
        return {piece: score for number, piece, score in scored if score or not self._is_symbol(number, piece)}

    def _is_symbol(self, number: int, piece: str) -> bool:
        """Whether a token with score 0 is a user-defined symbol.

        In byte-pair encoding the first merge has score 0 too, but is cut if all merges are dropped.
        """
        return not self.is_kind("bpe") or number in self._model.sample_encode_as_ids(piece, nbest_size=-1, alpha=1.0)

    def save(self, folder: Path, stem: str) -> None:
        (folder / f"{stem}.model").write_bytes(self.model_bytes())

    def model_bytes(self) -> bytes:
        """Return the content of a sentencepiece model file."""
        content: bytes = self._model.serialized_model_proto()
        return content


@tokenizers.register("bpe", BpeConfig)
@tokenizers.register("unigram", UnigramConfig)
class SentencePieceBuilder(TokenizerBuilder):
    """Trains and loads sentencepiece models of both types."""

    def __init__(self, config: SentencePieceConfig) -> None:
        self._config = config

    def train(self, lines: Iterable[str], seed: int) -> Tokenizer:
        """``seed`` draws the sample of lines; that of sentencepiece itself would differ each time."""
        config, model, errors = self._config, io.BytesIO(), list[BaseException]()

        def watched() -> Iterator[str]:
            """Keep errors, which the trainer replaces by its own. Refuse blank text."""
            try:
                has_text = False
                for line in sampled(lines, config.max_training_lines, seed):
                    has_text = has_text or bool(line.strip())
                    yield from _parts(line)
                if not has_text:
                    raise DataError("there is no text to learn tokens from: every training line is empty")
            except BaseException as error:  # Ctrl-C, too
                errors.append(error)
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=watched(),
                model_writer=model,
                model_type=config.model_type,
                vocab_size=config.vocab_size,
                character_coverage=config.character_coverage,
                normalization_rule_name=config.normalization.value,
                byte_fallback=config.byte_fallback,
                user_defined_symbols=config.user_defined_symbols,
                hard_vocab_limit=config.hard_vocab_limit,
                max_sentence_length=_LONGEST_LINE,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                pad_piece=_hidden("pad"),
                unk_piece=_hidden("unk"),
                bos_piece=_hidden("bos"),
                eos_piece=_hidden("eos"),
                num_threads=_THREADS,
                minloglevel=2,
            )
        except (RuntimeError, OSError, ValueError) as error:  # ValueError: a number out of range
            if errors:
                raise errors[0] from None
            raise UsageError(_explained(config, str(error))) from error
        return SentencePieceTokenizer(config, model.getvalue())

    def load(self, folder: Path, stem: str) -> Tokenizer:
        path = folder / f"{stem}.model"
        with damage_named(path):
            return SentencePieceTokenizer(self._config, read_model(path))

    def from_file(self, path: Path) -> Tokenizer:
        if is_dictionary_of_fairseq(path):
            raise DataError(
                f"{path} is a fairseq dictionary (a token and its count on each line), which cannot segment text; "
                f"give the sentencepiece model, or use tokenizer=words for text that is segmented already"
            )
        with damage_named(path):
            return SentencePieceTokenizer(self._config, read_foreign_model(path))

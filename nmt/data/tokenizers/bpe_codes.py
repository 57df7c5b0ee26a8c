"""Words cut by the merge operations of subword-nmt and fastBPE, with a list of tokens that gives the ids.

Sennrich et al. 2016 (arXiv:1508.07909). A word starts as its characters. The first applicable operation of the list joins
its two parts wherever they are neighbors, until no operation applies.

    merge operations                  the end of a word, "</w>"
    subword-nmt, "#version: 0.2"      is part of the last character
    subword-nmt 0.1, no first line    is a separate part
    fastBPE, three columns            is part of the last character; the counts are ignored

fairseq's models mark a token that continues its word with "@@"; Hugging Face's FSMT marks the end of a word with "</w>".
"""

from __future__ import annotations

import contextlib
import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.checks import refuse
from nmt.config.choices import CONTINUED, PieceMarks
from nmt.config.option import ShortRepr, option
from nmt.data.text.lines import one_line, require_text
from nmt.data.text.piece_marks import joined
from nmt.data.text.words import Span, spans_of_texts
from nmt.data.tokenizers import Tokenizer, tokenizers
from nmt.data.tokenizers.bpe_dropout import BpeDropout, Merges
from nmt.data.tokenizers.imported import ImportedBuilder
from nmt.data.tokenizers.piece_lists import UNKNOWN_MARK, read_pieces, write_pieces
from nmt.data.tokenizers.sampling import Sampler
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints, Vocabulary
from nmt.errors import DataError, UsageError, needing
from nmt.storage.reading import read_file

_END = "</w>"
_VERSION = re.compile(r"#version: *(\d+\.\d+)")
_KNOWN_WORDS = 2**18  # cached words
# Characters; the time that normalization by the Moses rules takes for a row of dots grows with the square of its length.
_STRETCH = 4096
_STRETCH_OF_A_WORD = 512  # of a word that is longer than that: 6 times as fast

Ranks = dict[tuple[str, str], int]


class WordEnds(Enum):
    """How tokens mark the end of a word."""

    at_signs = "at_signs"  # "hau@@ s": all but the last are marked
    end_of_word = "end_of_word"  # "hau s</w>": the last is marked


@dataclass
class BpeCodesConfig(ShortRepr):
    """Merge operations and a list of tokens, of an imported model."""

    word_ends: WordEnds = option(
        WordEnds.at_signs,
        help="Word boundary marks: at_signs (@@ on all tokens of a word but the last) or end_of_word "
        "(</w> on the last)",
    )
    moses: bool = option(False, help="Split text into words by the Moses rules before BPE, and join them when decoding")
    language: str = option("", help="Language of the Moses rules, such as de")
    normalize_punctuation: bool = option(False, help="Normalize punctuation as Moses does; only with moses")

    def __post_init__(self) -> None:
        refuse(
            (self.moses and not self.language, "tokenizer.moses=true needs tokenizer.language, such as de"),
            (
                self.normalize_punctuation and not self.moses,
                "tokenizer.normalize_punctuation=true needs tokenizer.moses=true: set both",
            ),
        )


class BpeCodes(Tokenizer):
    """A token that is not in the list is unknown. Only the space U+0020 separates words."""

    def __init__(self, config: BpeCodesConfig, codes: bytes, pieces: Iterable[str]) -> None:
        """``codes``: content of the file of merge operations; ``pieces``: tokens by id, without special ones."""
        self.config = config
        self.vocabulary = Vocabulary(pieces)
        self._codes = codes
        self._ranks, self._end_apart = read_codes(codes)
        self._moses = _Moses(config.language, config.normalize_punctuation) if config.moses else None
        self._known: dict[str, list[int]] = {}

    def encode(self, lines: Sequence[str]) -> list[Ints]:
        require_text(lines)
        return [np.array(self._ids(self._words(line)), dtype=np.int64) for line in lines]

    def _words(self, line: str) -> list[str]:
        words = line.split(" ") if self._moses is None else self._moses.words(line)
        return [word for word in words if word]

    def _ids(self, words: Iterable[str]) -> list[int]:
        ids: list[int] = []
        for word in words:
            ids_of_word = self._known.get(word)
            if ids_of_word is None:
                if len(self._known) >= _KNOWN_WORDS:
                    self._known.clear()
                ids_of_word = self._known[word] = [
                    self.vocabulary.id(piece) for piece in self._written(self._cut(word))
                ]
            ids += ids_of_word
        return ids

    def _cut(self, word: str) -> list[str]:
        """Cut a word into parts without marks."""
        parts = merged([*word, _END] if self._end_apart else [*word[:-1], word[-1] + _END], self._ranks)
        last = parts.pop().removesuffix(_END)
        return [*parts, last] if last else parts

    def _written(self, parts: list[str]) -> list[str]:
        """Return the parts of a word with the marks of the list."""
        if self.config.word_ends is WordEnds.at_signs:
            return _with_at_signs(parts)
        return [*parts[:-1], parts[-1] + _END]

    def decode(self, ids: Sequence[int]) -> str:
        return self.decode_with(ids, [UNKNOWN_MARK] * list(ids).count(UNK))

    def decode_with(self, ids: Sequence[int], unknown: Sequence[str]) -> str:
        """As in ``surfaces``, a word that ends in "@@" continues in the next token."""
        words = iter(unknown)
        textual = (int(number) for number in ids if number not in (PAD, BOS, EOS))
        if self.config.word_ends is WordEnds.at_signs:
            pieces = (self.vocabulary.pieces[i] if i != UNK else next(words) for i in textual)
            line = joined(" ".join(pieces), PieceMarks.subword_nmt)
        else:
            pieces = (self.vocabulary.pieces[i] if i != UNK else _ended(next(words)) for i in textual)
            line = "".join(pieces).replace(_END, " ").rstrip(" ")
        return one_line(line if self._moses is None else self._moses.text(line))

    def surfaces(self, line: str) -> list[str]:
        return [part for word in self._words(line) for part in _with_at_signs(self._cut(word))]

    def spans(self, line: str) -> list[Span]:
        """All parts of a word have its whole span if Moses cut it, since Moses may change characters."""
        words = self._words(line)
        if self._moses is None:
            return spans_of_texts(line, [part for word in words for part in self._cut(word)])
        of_words = spans_of_texts(line, [unescape(word).replace("@-@", "-") for word in words])
        return [span for word, span in zip(words, of_words) for _ in self._cut(word)]

    def bpe_dropout(self, dropout: float) -> Sampler:
        if self._end_apart:
            raise UsageError(
                "variation.bpe_dropout (--bpe-dropout) does not support merge operations of version 0.1, which treat the "
                "end of a word as a separate symbol; omit it"
            )
        spelled = [self._spelled(piece) for piece in self.vocabulary.pieces]
        texts = {text for pair in self._ranks for text in (*pair, "".join(pair))}.union(*spelled)
        parts = {text: number for number, text in enumerate(sorted(texts))}
        ranked = {
            (parts[left], parts[right]): (float(rank), parts[left + right])
            for (left, right), rank in self._ranks.items()
        }
        merges = Merges(ranked, [self.vocabulary.id(self._as_piece(text)) for text in parts])
        characters = [[parts[text] for text in texts] for texts in spelled]
        ends_word = np.array([len(texts) > 0 and texts[-1].endswith(_END) for texts in spelled])
        return BpeDropout(np.zeros(len(spelled), dtype=bool), characters, merges, dropout, ends_word)

    def _spelled(self, piece: str) -> list[str]:
        """Return the characters that merge to a token; none for a special one."""
        if piece in SPECIALS:
            return []
        if self.config.word_ends is WordEnds.at_signs:
            piece = piece.removesuffix(CONTINUED) if piece.endswith(CONTINUED) else piece + _END
        text = piece.removesuffix(_END)
        return [*text[:-1], text[-1:] + piece[len(text) :]] if text else []

    def _as_piece(self, text: str) -> str:
        """Return a part of a word with the marks of the list."""
        if self.config.word_ends is WordEnds.end_of_word:
            return text
        return text.removesuffix(_END) if text.endswith(_END) else text + CONTINUED

    def save(self, folder: Path, stem: str) -> None:
        (folder / f"{stem}.codes").write_bytes(self._codes)
        write_pieces(folder / f"{stem}.json", self.vocabulary)


@tokenizers.register("bpe_codes", BpeCodesConfig)
class BpeCodesBuilder(ImportedBuilder):
    """Loads the merge operations and the list."""

    def load(self, folder: Path, stem: str) -> Tokenizer:
        path = folder / f"{stem}.codes"
        codes = read_file(path)
        pieces = read_pieces(folder / f"{stem}.json")
        with codes_named(path):
            return BpeCodes(self._config, codes, pieces)


@contextlib.contextmanager
def codes_named(path: Path) -> Iterator[None]:
    """Add the name of the file of merge operations to errors."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path} is damaged: {error}") from None


def read_codes(codes: bytes) -> tuple[Ranks, bool]:
    """Return the rank of each merge operation, and whether the end of a word is a separate part.

    Messages of errors do not name the file.
    """
    try:
        lines = codes.decode("utf-8").rstrip("\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"byte {error.start} of the merge operations is not UTF-8") from None
    version = _VERSION.fullmatch(lines[0].strip())
    if version is not None and version[1] not in ("0.1", "0.2"):
        raise DataError(f"the merge operations are of version {version[1]}; versions 0.1 and 0.2 are supported")
    ranks: Ranks = {}
    counted = False
    for number, line in enumerate(lines[version is not None :], start=1 + (version is not None)):
        match line.strip("\r ").split(" "):
            case [left, right] if left and right:
                ranks.setdefault((left, right), number)
            case [left, right, count] if left and right and count.isdecimal():  # as fastBPE writes
                ranks.setdefault((left, right), number)
                counted = True
            case _:
                raise DataError(f"line {number} of the merge operations is not two symbols: {line[:60]!r}")
    if version is not None:
        return ranks, version[1] == "0.1"
    # Without a version line: a separate end of a word shows the old rule.
    ended = {part for pair in ranks for part in pair if part.endswith(_END)}
    return ranks, not counted and (_END in ended or not ended)


def merged(parts: list[str], ranks: Ranks) -> list[str]:
    """Apply all merges to the parts of a word in O(n log n)."""
    following = [*range(1, len(parts) + 1)]  # the place of the part after each
    before = [*range(-1, len(parts) - 1)]
    waiting = [(ranks[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in ranks]
    heapq.heapify(waiting)
    while waiting:
        rank, made = waiting[0][0], list[int]()
        while waiting and waiting[0][0] == rank:  # one operation everywhere, from the left
            _, place = heapq.heappop(waiting)
            right = following[place]
            if right >= len(parts) or ranks.get((parts[place], parts[right])) != rank:  # a part has been merged
                continue
            parts[place] += parts[right]
            parts[right] = ""
            following[place] = following[right]
            if following[right] < len(parts):
                before[following[right]] = place
            made.append(place)
        for place in made:
            for left in (before[place], place):
                if left >= 0 and following[left] < len(parts):
                    pair = parts[left], parts[following[left]]
                    if pair in ranks:
                        heapq.heappush(waiting, (ranks[pair], left))
    return [part for part in parts if part]


def _with_at_signs(parts: list[str]) -> list[str]:
    return [*(part + CONTINUED for part in parts[:-1]), parts[-1]]


def _ended(word: str) -> str:
    return word.removesuffix(CONTINUED) if word.endswith(CONTINUED) else word + _END


def _stretches(line: str) -> Iterator[str]:
    """Yield a line in stretches of at most ``_STRETCH`` characters that end before a space; cut longer words anywhere."""
    begin = 0
    while len(line) - begin > _STRETCH:
        space = line.rfind(" ", begin + 1, begin + _STRETCH + 1)
        end = begin + _STRETCH_OF_A_WORD if space < 0 else space
        yield line[begin:end]
        begin = end
    yield line[begin:]


class _Moses:
    """Moses' rules for words and punctuation (Koehn et al. 2007) as in fairseq's models: hyphens cut, XML escaped."""

    def __init__(self, language: str, normalize: bool) -> None:
        with needing("moses", "a tokenizer with the Moses rules"):
            import sacremoses
        self._tokenizer: Any = sacremoses.MosesTokenizer(lang=language)
        self._detokenizer: Any = sacremoses.MosesDetokenizer(lang=language)
        self._normalizer: Any = None
        if normalize:
            self._normalizer = sacremoses.MosesPunctNormalizer(
                lang=language, pre_replace_unicode_punct=True, post_remove_control_chars=True
            )

    def words(self, line: str) -> list[str]:
        """Return the words of a line. A longer line than ``_STRETCH`` is cut at spaces first, if it has some."""
        return [word for stretch in _stretches(line) for word in self._words_of(stretch)]

    def _words_of(self, line: str) -> list[str]:
        if self._normalizer is not None:
            line = self._normalizer.normalize(line)
        words: list[str] = self._tokenizer.tokenize(line, aggressive_dash_splits=True)
        return words

    def text(self, line: str) -> str:
        text: str = self._detokenizer.detokenize(line.split(" "))
        return text

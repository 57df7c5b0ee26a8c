"""Words as they stand between spaces, for text that was tokenised before."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.config.choices import PieceMarks
from nmt.data.cut_text import joined
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import PieceListBuilder, PieceListConfig, PieceListTokenizer


@dataclass
class WordsConfig(PieceListConfig):
    """One piece a word."""


class WordTokenizer(PieceListTokenizer):
    """Only the space U+0020 separates; a tab or a no-break space belongs to its word. Of text that was cut before, each
    piece is a word here until it is decoded."""

    keeps_pieces = True

    def joining(self, marks: PieceMarks) -> WordTokenizer:
        other = copy.copy(self)
        other.marks = marks
        return other

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

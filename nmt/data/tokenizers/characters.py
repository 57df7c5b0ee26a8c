"""Characters: every Unicode code point is a piece, the space too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import PieceListBuilder, PieceListConfig, PieceListTokenizer


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

"""Vocabularies, types of arrays of ids, and hypotheses in ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # --help and typing errors need no numpy
    import numpy as np
    import numpy.typing as npt

Ids: TypeAlias = "npt.NDArray[np.integer]"  # in the data type of a corpus
Ints: TypeAlias = "npt.NDArray[np.int64]"
Floats: TypeAlias = "npt.NDArray[np.float32]"
Flags: TypeAlias = "npt.NDArray[np.bool_]"

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """Tokens in the order of their ids: four special ones, then those of the tokenizer."""

    def __init__(self, pieces: Iterable[str]) -> None:
        """``pieces``: distinct tokens, without special ones."""
        self.pieces: tuple[str, ...] = (*SPECIALS, *pieces)
        self._ids = {piece: number for number, piece in enumerate(self.pieces) if number >= len(SPECIALS)}
        assert len(self._ids) == len(self.pieces) - len(SPECIALS), "a piece occurs twice"

    def __len__(self) -> int:
        return len(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(self.pieces)

    def id(self, piece: str) -> int:
        """Return the id of a token of text; the spelling of a special token is unknown text."""
        return self._ids.get(piece, UNK)

    def digest(self) -> str:
        """Return the SHA-256 of the tokens, which identifies a vocabulary independently of its file."""
        return hashlib.sha256("\n".join(self.pieces).encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class VocabularySizes:
    """The vocabulary sizes for a model; ids 0-3 are pad, unk, bos and eos in both."""

    source: int
    target: int
    shared: bool  # one joint vocabulary: the embeddings may be shared


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis of a search, on the CPU."""

    tokens: Ints  # [length] target ids, without bos, ending in eos
    score: float  # rank in the search: log-probability under the length penalty
    log_probability: float  # sum of token_scores, natural logarithm
    token_scores: Floats  # [length] log-probability of each token, eos included
    attention: Floats | None  # [length, S] over the real source positions (eos included), when asked for
    finished: bool = True  # False: the length limit ended it

"""The pieces that a model knows, their ids, and a translation in ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer]  # in as many bytes as a corpus has them
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """Pieces in id order: the four specials first, then what the tokenizer knows."""

    def __init__(self, pieces: Iterable[str]) -> None:
        """``pieces`` without the specials, each once."""
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
        """The id of a piece of text; a special's own spelling is text like any other, so it is unknown here."""
        return self._ids.get(piece, UNK)

    def digest(self) -> str:
        """SHA-256 over the pieces: the identity of a vocabulary, whatever file it came from."""
        return hashlib.sha256("\n".join(self.pieces).encode("utf-8")).hexdigest()


@dataclass(frozen=True)
class VocabularySizes:
    """All that a model learns of the vocabularies; ids 0-3 are pad, unk, bos and eos in both."""

    source: int
    target: int
    shared: bool  # one joint vocabulary: the embeddings may be shared


@dataclass(frozen=True)
class Hypothesis:
    """One translation; everything is on the CPU."""

    tokens: Ints  # [length] target ids, without bos, ending in eos
    score: float  # what the search ranks by: log-probability under the length penalty
    log_probability: float  # sum of token_scores, natural logarithm
    token_scores: Floats  # [length] log-probability of each token, eos included
    attention: Floats | None  # [length, S] over the real source positions (eos included), when asked for
    finished: bool = True  # False: the length limit ended it

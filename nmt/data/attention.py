"""What a model attended to, of one sentence pair, as plain data.

Shapes: L layers, H heads, R words that look, C words that are looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmt.data.vocabulary import BOS, EOS, SPECIALS, Floats

# By kind: who looks at what.
KINDS = {
    "encoder": "source words at source words",
    "decoder": "written words at those before them",
    "cross": "written words at source words",
}
_WORD_BEGINS, _WORD_GOES_ON = "\u2581", "@@"


@dataclass(frozen=True)
class SentenceAttention:
    """The attention of one sentence pair. An empty line has neither pieces nor weights.

    ``source`` are the pieces that the encoder read, ``target`` those that the decoder wrote; both end in "</s>". A row of
    "decoder" and of "cross" belongs to the piece that was written there, and when it was written, the decoder had ``read``.
    Every row sums to 1; what must not be seen has weight 0.
    """

    number: int  # of the line, counted from 0
    source: Sequence[str]
    target: Sequence[str]
    read: Sequence[str]  # "<s>" and the pieces written before the last
    weights: Mapping[str, Floats]  # by kind [L, H, R, C]; of an ensemble the mean, where its models are of one shape
    members: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)  # the same of each model, by its path

    def rows(self, kind: str) -> Sequence[str]:
        """The pieces that look."""
        return self.source if kind == "encoder" else self.target

    def columns(self, kind: str) -> Sequence[str]:
        """The pieces that are looked at."""
        return self.read if kind == "decoder" else self.source

    def by_words(self) -> SentenceAttention:
        """Words in place of their pieces: what is looked at is summed up, those who look are averaged."""
        (source, of_source), (target, of_target) = (_words(pieces) for pieces in (self.source, self.target))
        read, of_read = _words(self.read)
        sides = {"encoder": (of_source, of_source), "decoder": (of_target, of_read), "cross": (of_target, of_source)}

        def joined(weights: Mapping[str, Floats]) -> dict[str, Floats]:
            return {kind: _joined(maps, *sides[kind]) for kind, maps in weights.items()}

        members = {name: joined(weights) for name, weights in self.members.items()}
        return replace(self, source=source, target=target, read=read, weights=joined(self.weights), members=members)


def _joined(maps: Floats, looking: Sequence[int], seen: Sequence[int]) -> Floats:
    """[L, H, R, C] -> [L, H, words, words]; the starts of the words among the pieces of each side."""
    if not looking or not seen:
        return maps
    sizes = np.diff([*looking, maps.shape[2]])
    rows = np.add.reduceat(maps, looking, axis=2) / sizes[:, None]
    joined: Floats = np.add.reduceat(rows, seen, axis=3).astype(np.float32)
    return joined


def starts_of_words(pieces: Sequence[str]) -> list[int]:
    """Where each word begins: at a mark of sentencepiece, or after a piece without subword-nmt's mark."""
    marked = _marked(pieces)
    starts = []
    for place, piece in enumerate(pieces):
        before = pieces[place - 1] if place else SPECIALS[BOS]
        goes_on = not piece.startswith(_WORD_BEGINS) if marked else before.endswith(_WORD_GOES_ON)
        if not goes_on or {piece, before} & {SPECIALS[BOS], SPECIALS[EOS]}:
            starts.append(place)
    return starts


def _marked(pieces: Sequence[str]) -> bool:
    return any(piece.startswith(_WORD_BEGINS) for piece in pieces)


def _words(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Words, and where each begins."""
    marked, starts, words = _marked(pieces), starts_of_words(pieces), list[str]()
    for start, end in itertools.pairwise([*starts, len(pieces)]):
        parts = (
            piece.removesuffix(_WORD_GOES_ON) if place < end - start - 1 else piece
            for place, piece in enumerate(pieces[start:end])
        )
        words.append("".join(parts).replace(_WORD_BEGINS, "") if marked else "".join(parts))
    return words, starts

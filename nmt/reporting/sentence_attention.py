"""The attention of a model in one sentence pair, as plain data.

Shapes: L layers, H heads, R rows (queries), C columns (keys).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmt.config.choices import CONTINUED, WORD_START
from nmt.data.vocabulary import BOS, EOS, SPECIALS, Floats
from nmt.errors import shown

# Source to source, target to earlier target, and target to source.
KINDS = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class SentenceAttention:
    """The attention of one sentence pair. An empty line has neither tokens nor weights.

    ``source`` holds the tokens that the encoder read, ``target`` those that the decoder wrote; both end in "</s>". An
    unknown token is replaced by its text. A row of "decoder" and of "cross" belongs to the target token that was predicted
    there, from the tokens ``read`` up to it. Every row sums to 1; masked positions have weight 0.
    """

    number: int  # of the line, counted from 0
    source: Sequence[str]
    target: Sequence[str]
    read: Sequence[str]  # the decoder's input: "<s>" and the target tokens without the last
    weights: Mapping[str, Floats]  # by kind [L, H, R, C]; for an ensemble the mean, if its models have the same shape
    members: Mapping[str, Mapping[str, Floats]] = field(default_factory=dict)  # the weights of each model, by its path
    source_text: str = ""  # the input line
    target_text: str = ""  # the reference, or the decoded translation

    def __repr__(self) -> str:
        texts = f"{shown(self.source_text)} -> {shown(self.target_text)}"
        return f"<{type(self).__name__} {texts}: {', '.join(self.weights or self.members)}>"

    def rows(self, kind: str) -> Sequence[str]:
        """Return the queries."""
        return self.source if kind == "encoder" else self.target

    def columns(self, kind: str) -> Sequence[str]:
        """Return the keys."""
        return self.read if kind == "decoder" else self.source

    def by_words(self) -> SentenceAttention:
        """Return the attention of words: weights are averaged over the tokens of a query, and summed over those of a key."""
        (source, of_source), (target, of_target) = (_words(pieces) for pieces in (self.source, self.target))
        read, of_read = _words(self.read)
        sides = {"encoder": (of_source, of_source), "decoder": (of_target, of_read), "cross": (of_target, of_source)}

        def joined(weights: Mapping[str, Floats]) -> dict[str, Floats]:
            return {kind: _joined(maps, *sides[kind]) for kind, maps in weights.items()}

        members = {name: joined(weights) for name, weights in self.members.items()}
        return replace(self, source=source, target=target, read=read, weights=joined(self.weights), members=members)


def _joined(maps: Floats, queries: Sequence[int], keys: Sequence[int]) -> Floats:
    """[L, H, R, C] -> [L, H, words, words], given the first token of each word of both sides."""
    if not queries or not keys:
        return maps
    sizes = np.diff([*queries, maps.shape[2]])
    rows = np.add.reduceat(maps, queries, axis=2) / sizes[:, None]
    joined: Floats = np.add.reduceat(rows, keys, axis=3).astype(np.float32)
    return joined


def starts_of_words(pieces: Sequence[str]) -> list[int]:
    """Return the first token of each word: one with sentencepiece's mark, or one after a token without subword-nmt's."""
    marked = _marked(pieces)
    starts = []
    for number, (before, piece) in enumerate(itertools.pairwise([SPECIALS[BOS], *pieces])):
        continues = not piece.startswith(WORD_START) if marked else before.endswith(CONTINUED)
        if not continues or {piece, before} & {SPECIALS[BOS], SPECIALS[EOS]}:
            starts.append(number)
    return starts


def _marked(pieces: Sequence[str]) -> bool:
    return any(piece.startswith(WORD_START) for piece in pieces)


def _words(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the words, and the first token of each."""
    marked, starts, words = _marked(pieces), starts_of_words(pieces), list[str]()
    for start, end in itertools.pairwise([*starts, len(pieces)]):
        word = "".join([*(piece.removesuffix(CONTINUED) for piece in pieces[start : end - 1]), pieces[end - 1]])
        words.append(word.replace(WORD_START, "") if marked else word)
    return words, starts

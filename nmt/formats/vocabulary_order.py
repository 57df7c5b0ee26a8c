"""The order of a vocabulary: each toolkit puts its special symbols at other ids."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from nmt.errors import DataError, UsageError
from nmt.models.transformer.weights import Array, LinearWeights, TransformerWeights
from nmt.storage.arrays import release, widened

# Output bias of a piece that the other toolkit lacks: probability zero in float32, but finite for training.
ABSENT = -100.0
_BLOCK = 16_384  # rows


@dataclass(frozen=True)
class VocabularyOrder:
    """The row of each of our tokens in the arrays of another toolkit."""

    pieces: tuple[str, ...]  # without our specials
    rows: tuple[int | None, ...]  # for each of our ids, specials first; None: the other toolkit lacks the token

    @classmethod
    def of(cls, symbols: Sequence[str], specials: Sequence[int | None], origin: str) -> VocabularyOrder:
        """``symbols``: the other vocabulary; ``specials``: its ids of pad, unk, bos and eos."""
        there = [number for number in specials if number is not None]
        special_ids = set(there)
        if len(special_ids) != len(there) or any(number >= len(symbols) for number in there):
            raise DataError(
                f"{origin}: the special symbols have the ids {there}, which must differ and be below {len(symbols)}; take "
                "the tokenizer and the options from the same model"
            )
        others = [number for number in range(len(symbols)) if number not in special_ids]
        pieces = tuple(symbols[number] for number in others)
        if len(set(pieces)) != len(pieces):
            twice = next(piece for number, piece in enumerate(pieces) if piece in pieces[:number])
            raise DataError(f"{origin}: the token {twice!r} is in the vocabulary twice")
        return cls(pieces, (*specials, *others))

    def arrange(self, array: Array, *, absent: float = 0.0) -> Array:
        """Return rows of the other toolkit in our order; rows that it lacks hold ``absent``."""
        rows = np.array([-1 if row is None else row for row in self.rows])
        arranged: Array = np.empty((len(rows), *array.shape[1:]), dtype=np.float32)
        for begin in range(0, len(rows), _BLOCK):  # a large array is not in memory twice
            arranged[begin : begin + _BLOCK] = widened(array[rows[begin : begin + _BLOCK]])
            release(array)
        arranged[rows < 0] = absent
        return arranged

    def output(self, linear: LinearWeights, weight: Array | None = None) -> LinearWeights:
        """Return the output layer in our order. It gets a bias if the other toolkit lacks a token of ours. ``weight``: its
        matrix in our order, if it was arranged before."""
        weight = self.arrange(linear.weight) if weight is None else weight
        if linear.bias is None and None not in self.rows:
            return LinearWeights(weight)
        bias = np.zeros(len(linear.weight), dtype=np.float32) if linear.bias is None else linear.bias
        return LinearWeights(weight, self.arrange(bias, absent=ABSENT))


def require_equal_vocabularies(vocabularies: Set[object], path: str) -> None:
    """Refuse an ensemble of models with different vocabularies, which may be represented by their digests or sizes."""
    if len(vocabularies) > 1:
        raise UsageError(f"{path}: the models have different vocabularies, so they cannot form an ensemble")


def require_vocabulary_sizes(
    weights: TransformerWeights, orders: Sequence[VocabularyOrder], origin: str, advice: str = ""
) -> None:
    """Refuse embeddings whose number of rows is not the size of the vocabulary. ``orders``: of source and target."""
    for side, stack, order in zip(("source", "target"), (weights.source, weights.target), orders):
        size = len(order.rows) - order.rows.count(None)
        if len(stack.embedding) != size:
            raise DataError(f"{origin} has {len(stack.embedding)} {side} tokens, but the vocabulary has {size}{advice}")


def in_our_order(weights: TransformerWeights, source: VocabularyOrder, target: VocabularyOrder) -> TransformerWeights:
    """Return the model with the rows of its embeddings and output layer in our order; shared arrays stay shared."""
    arranged: dict[tuple[int, int], Array] = {}

    def embedding(array: Array, order: VocabularyOrder) -> Array:
        key = id(array), id(order)
        if key not in arranged:
            arranged[key] = order.arrange(array)
        return arranged[key]

    tied = weights.output.weight is weights.target.embedding
    output = target.output(weights.output, embedding(weights.target.embedding, target) if tied else None)
    return replace(
        weights,
        source=replace(weights.source, embedding=embedding(weights.source.embedding, source)),
        target=replace(weights.target, embedding=embedding(weights.target.embedding, target)),
        output=output,
    )

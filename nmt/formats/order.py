"""The order of a vocabulary: every toolkit has its own special symbols, at other places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmt.errors import DataError
from nmt.models.transformer.weights import Array, Linear, TransformerWeights

# The bias of a piece that the other toolkit has not: its probability is zero in float32, and stays finite for training.
ABSENT = -100.0


@dataclass(frozen=True)
class Order:
    """Where the pieces of our vocabulary stand in another toolkit's."""

    pieces: tuple[str, ...]  # without our specials
    rows: tuple[int | None, ...]  # of all our ids, specials first; None: there is none

    @classmethod
    def of(cls, symbols: Sequence[str], specials: Sequence[int | None], origin: str) -> Order:
        """``symbols``: the other vocabulary; ``specials``: where pad, unk, bos and eos stand in it."""
        there = [number for number in specials if number is not None]
        taken = set(there)
        if len(taken) != len(there) or any(number >= len(symbols) for number in there):
            raise DataError(f"{origin}: its special symbols have the ids {there} among {len(symbols)} pieces")
        others = [number for number in range(len(symbols)) if number not in taken]
        pieces = tuple(symbols[number] for number in others)
        if len(set(pieces)) != len(pieces):
            twice = next(piece for number, piece in enumerate(pieces) if piece in pieces[:number])
            raise DataError(f"{origin}: the piece {twice!r} stands in the vocabulary twice")
        return cls(pieces, (*specials, *others))

    def arrange(self, array: Array, *, absent: float = 0.0) -> Array:
        """Rows of the other toolkit in our order."""
        rows = np.array([-1 if row is None else row for row in self.rows])
        arranged: Array = array[rows].astype(np.float32)
        arranged[rows < 0] = absent
        return arranged

    def output(self, linear: Linear) -> Linear:
        """The output layer in our order: with a bias if there is one, or if we have a piece that the other has not."""
        weight = self.arrange(linear.weight)
        if linear.bias is None and None not in self.rows:
            return Linear(weight)
        bias = np.zeros(len(linear.weight), dtype=np.float32) if linear.bias is None else linear.bias
        return Linear(weight, self.arrange(bias, absent=ABSENT))


def in_our_order(weights: TransformerWeights, source: Order, target: Order) -> TransformerWeights:
    """The same model with the rows of its embeddings and of its output layer in our order; what it shares stays shared."""
    arranged: dict[tuple[int, int], Array] = {}

    def embedding(array: Array, order: Order) -> Array:
        key = id(array), id(order)
        if key not in arranged:
            arranged[key] = order.arrange(array)
        return arranged[key]

    output = target.output(weights.output)
    if weights.output.weight is weights.target.embedding:
        output = replace(output, weight=embedding(weights.target.embedding, target))
    return replace(
        weights,
        source=replace(weights.source, embedding=embedding(weights.source.embedding, source)),
        target=replace(weights.target, embedding=embedding(weights.target.embedding, target)),
        output=output,
    )

"""Names and layouts of a format's arrays: one table for each format, which reading and writing share.

A table lists the arrays of a sublayer, and the parts of the plain description (nmt.models.transformer.weights) in each.
An array of several parts has their rows one below the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nmt.errors import DataError
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    FeedForwardWeights,
    LayerWeights,
    LinearWeights,
    NormWeights,
    PositionsInHeads,
    Recurrence,
    StackWeights,
    TransformerWeights,
)
from nmt.storage.arrays import widened

_SINUSOID_TOLERANCE = 1e-3  # between float32 and float64, at positions of some thousands
Positions = Array | Sinusoids | PositionsInHeads | Buckets
ArrayTable = Mapping[str, str]  # from the name of an array to the parts that it holds
# Outputs and inputs of each part. Sizes of one name are equal within a sublayer.
_SIZES = {
    "query": ("keys", "width"),
    "key": ("keys", "width"),
    "value": ("values", "width"),
    "output": ("width", "values"),
    "inner": ("inner", "width"),
    "gate": ("inner", "width"),
    "outer": ("width", "inner"),
    "forget": ("width", "width"),
    "input": ("width", "width"),
}


@dataclass(frozen=True)
class FormatLayout:
    """Array names of a format. In the names of linear maps and norms, "*" means the weight or the bias."""

    layer: str  # what the names of a layer begin with; {side} and {number} are filled in
    self_attention: ArrayTable
    cross_attention: ArrayTable
    feed_forward: ArrayTable
    norms: tuple[str, str, str]  # of self-attention, cross-attention and feed-forward network
    final_norm: str  # for models with a norm before each sublayer
    embeddings: tuple[str, str]  # of source and target
    output: str
    positions: str = ""
    embedding_norm: str = ""  # of models with a norm of the embeddings
    sides: tuple[str, str] = ("encoder", "decoder")
    first_layer: int = 0
    linear_names: tuple[str, str] = ("weight", "bias")  # for "*"
    norm_names: tuple[str, str] = ("weight", "bias")  # for "*"; the bias is empty for RMSNorm
    any_head_size: bool = False  # otherwise it is the width divided by the number of heads
    transposed: bool = False  # matrices are [inputs, outputs], vectors are [1, size]

    def layer_name(self, side: str, number: int) -> str:
        return self.layer.format(side=side, number=number + self.first_layer)

    def arrays(self, weights: TransformerWeights, *, zero_biases: bool = False) -> Iterator[tuple[str, Array]]:
        """Yield the names and arrays of all layers and final norms. With ``zero_biases``, each linear map has a bias."""
        for side, stack in zip(self.sides, (weights.source, weights.target)):
            for number, layer in enumerate(stack.layers):
                name = self.layer_name(side, number)
                yield from self._linear_arrays(name, self.self_attention, layer.self_attention, zero_biases)
                yield from self._linear_arrays(name, self.cross_attention, layer.cross_attention, zero_biases)
                yield from self._linear_arrays(name, self.feed_forward, layer.feed_forward, zero_biases)
                for pattern, norm in zip(self.norms, (layer.self_norm, layer.cross_norm, layer.feed_forward_norm)):
                    yield from self._norm_arrays(name + pattern, norm)
            yield from self._norm_arrays(self.final_norm.format(side=side), stack.norm)
            yield from self._norm_arrays(self.embedding_norm.format(side=side), stack.embedding_norm)

    def _linear_arrays(
        self,
        layer: str,
        table: ArrayTable,
        sublayer: Attention | Recurrence | FeedForwardWeights | None,
        zero_biases: bool,
    ) -> Iterator[tuple[str, Array]]:
        for pattern, parts in table.items():
            linears: list[LinearWeights] = [
                linear for part in parts.split() if (linear := getattr(sublayer, part, None))
            ]
            if not linears:
                continue
            weight, bias = (layer + pattern.replace("*", name) for name in self.linear_names)
            yield weight, _joined([linear.weight for linear in linears])
            if zero_biases or any(linear.bias is not None for linear in linears):
                yield bias, _joined([_bias_or_zeros(linear) for linear in linears])

    def _norm_arrays(self, pattern: str, norm: NormWeights | None) -> Iterator[tuple[str, Array]]:
        if norm is not None:
            weight, bias = (pattern.replace("*", name) for name in self.norm_names)
            yield weight, norm.weight
            if norm.bias is not None:
                yield bias, norm.bias


@dataclass
class LayoutReader:
    """Reads the layers of a model by the table of its format. A format may override how it reads an attention."""

    tensors: Tensors
    layout: FormatLayout
    width: int
    heads: int
    activation: Activation
    epsilon: float

    def layer_count(self, side: str) -> int:
        """Return the number of layers by the names in the file, at least 1."""
        start = re.escape(self.layout.layer.replace("{side}", side)).replace(r"\{number\}", r"(\d{1,4})")
        return 1 + max((int(number) for number in self.tensors.numbers(start)), default=0)

    def stack(
        self,
        side: str,
        embedding: Array,
        scale: float,
        positions: Positions,
        *,
        norm_first: bool,
        count: int | None = None,
    ) -> StackWeights:
        """Read the encoder or the decoder. ``count``: number of layers; None: by the names in the file."""
        names = (self.layout.layer_name(side, number) for number in range(count or self.layer_count(side)))
        layers = tuple(self._layer(side, name) for name in names)
        norm = self.norm(self.layout.final_norm.format(side=side)) if norm_first else None
        name = self.layout.embedding_norm.format(side=side)
        has_norm = name.replace("*", self.layout.norm_names[0]) in self.tensors
        return StackWeights(
            embedding, scale, positions, layers, norm, norm_first, self.norm(name) if has_norm else None
        )

    def positions(self, side: str, formula: Sinusoids) -> Array | Sinusoids:
        """Read the positions of a side; the formula, if there are none or they follow it, because it has no last row.

        The file also stores the rows before the formula's first position, which no token has.
        """
        table = self.tensors.optional(self.layout.positions.format(side=side), None, self.width)
        table = None if table is None else table[formula.offset :]
        if table is None or np.allclose(table, formula.table(len(table)), atol=_SINUSOID_TOLERANCE):
            return formula
        return table

    def _layer(self, side: str, name: str) -> LayerWeights:
        is_decoder = side == self.layout.sides[1]
        self_norm, cross_norm, feed_forward_norm = self.layout.norms
        return LayerWeights(
            self.self_attention(name, is_decoder=is_decoder),
            self.norm(name + self_norm),
            self.attention(name, self.layout.cross_attention) if is_decoder else None,
            self.norm(name + cross_norm) if is_decoder else None,
            self._feed_forward(name),
            self.norm(name + feed_forward_norm),
        )

    def self_attention(self, layer: str, *, is_decoder: bool) -> Attention | Recurrence:
        return self.attention(layer, self.layout.self_attention)

    def attention(self, layer: str, table: ArrayTable) -> Attention:
        """Read an attention without relative positions, whose scores are scaled by the size of a head."""
        sizes = {} if self.layout.any_head_size else {"keys": self.width, "values": self.width}
        linears = self.linears(layer, table, sizes)
        query, key, value, output = (linears[part] for part in ("query", "key", "value", "output"))
        return Attention(query, key, value, output, max(1, len(query.weight) // self.heads) ** -0.5)

    def linears(self, layer: str, table: ArrayTable, sizes: Mapping[str, int]) -> dict[str, LinearWeights]:
        """Read the linear maps of a sublayer. The first array with a size that ``sizes`` lacks sets this size."""
        known, linears = {"width": self.width, **sizes}, dict[str, LinearWeights]()
        for pattern, names in table.items():
            parts = names.split()
            weight, bias = (layer + pattern.replace("*", name) for name in self.layout.linear_names)
            if parts == ["gate"] and weight not in self.tensors:
                continue
            outputs, inputs = (known.get(size) for size in _SIZES[parts[0]])
            joint = self._linear(weight, bias, None if outputs is None else outputs * len(parts), inputs)
            for part, linear in zip(parts, _split(joint, len(parts))):
                linears[part] = linear
                for size, number in zip(_SIZES[part], linear.weight.shape):
                    known.setdefault(size, number)
        return linears

    def _linear(self, weight: str, bias: str, outputs: int | None, inputs: int | None) -> LinearWeights:
        if self.layout.transposed:
            matrix = self.tensors.unwidened(weight, inputs, outputs).T
        else:
            matrix = self.tensors.unwidened(weight, outputs, inputs)
        return LinearWeights(matrix, self.vector(bias, len(matrix)) if bias in self.tensors else None)

    def _feed_forward(self, layer: str) -> FeedForwardWeights:
        linears = self.linears(layer, self.layout.feed_forward, {})
        return FeedForwardWeights(linears["inner"], linears["outer"], self.activation, linears.get("gate"))

    def norm(self, pattern: str) -> NormWeights:
        weight, bias = (pattern.replace("*", name) if name else "" for name in self.layout.norm_names)
        return NormWeights(
            self.vector(weight, self.width), self.vector(bias, self.width) if bias else None, self.epsilon
        )

    def vector(self, name: str, size: int) -> Array:
        return self.tensors.take(name, *([1] if self.layout.transposed else []), size).reshape(-1)


def require_whole_heads(width: int, heads: int, origin: str) -> None:
    if width % heads or width % 2:
        raise DataError(
            f"{origin} has the width {width} and {heads} heads; the width must be even and divisible by the number "
            "of heads"
        )


def unusual_head_size(weights: TransformerWeights) -> int | None:
    """Return the head size of queries or values if it is not the width divided by the number of heads."""
    attention = weights.source.layers[0].attention
    sizes = (len(linear.weight) for linear in (attention.query, attention.value))
    return next((size // weights.num_heads for size in sizes if size != weights.width), None)


def same_if_equal(array: Array, other: Array) -> Array:
    """Return ``other`` if both hold the same numbers: a shared matrix is one array."""
    same_place = array.__array_interface__ == other.__array_interface__  # saves reading large ones
    return other if same_place or np.array_equal(widened(array), widened(other)) else array


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _bias_or_zeros(linear: LinearWeights) -> Array:
    return np.zeros(len(linear.weight), dtype=np.float32) if linear.bias is None else linear.bias


def _split(linear: LinearWeights, count: int) -> list[LinearWeights]:
    if count == 1:
        return [linear]
    biases = [None] * count if linear.bias is None else np.split(linear.bias, count)
    return [LinearWeights(*part) for part in zip(np.split(linear.weight, count), biases)]

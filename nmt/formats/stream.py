"""The numbers of the residual stream in another order, which leaves a model the same.

Sinusoids that stand in halves there and interleaved here differ in nothing but the order of D: whoever changes it everywhere
changes the layout of the positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nmt.data.vocabulary import Ints
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids
from nmt.models.transformer.weights import (
    Array,
    Attention,
    FeedForward,
    LayerWeights,
    Linear,
    Norm,
    StackWeights,
    TransformerWeights,
)

ORIGINAL_LAYOUT = "nmt_sinusoid_layout"  # in a config.json: what the model had before it was written


def in_halves(weights: TransformerWeights) -> TransformerWeights:
    """The same model with sines in the first half of D and cosines in the second."""
    return _Stream(_sines_first(weights.width), SinusoidLayout.halves).model(weights)


def interleaved(weights: TransformerWeights) -> TransformerWeights:
    """The other way round."""
    return _Stream(np.argsort(_sines_first(weights.width)), SinusoidLayout.interleaved).model(weights)


def without_zero_biases(weights: TransformerWeights) -> TransformerWeights:
    """The same model without biases in its attention, if they are all zero."""
    stacks = weights.source, weights.target
    attentions = [part for one in stacks for layer in one.layers for part in (layer.attention, layer.cross_attention)]
    linears = [linear for one in attentions if one for linear in (one.query, one.key, one.value, one.output)]
    if any(linear.bias is not None and linear.bias.any() for linear in linears):
        return weights

    def bare(attention: Attention) -> Attention:
        names = ("query", "key", "value", "output")
        changed: dict[str, Any] = {name: Linear(getattr(attention, name).weight) for name in names}
        return replace(attention, **changed)

    def stack(one: StackWeights) -> StackWeights:
        return replace(one, layers=tuple(map(layer, one.layers)))

    def layer(one: LayerWeights) -> LayerWeights:
        read = None if one.cross_attention is None else bare(one.cross_attention)
        return replace(one, self_attention=bare(one.attention), cross_attention=read)

    return replace(weights, source=stack(weights.source), target=stack(weights.target))


def _sines_first(width: int) -> Ints:
    return np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])


class _Stream:
    """Takes everything that reads from the stream or writes to it into a new order."""

    def __init__(self, order: Ints, layout: SinusoidLayout) -> None:
        """``layout``: that of the positions in this order."""
        self._order, self._layout = order, layout
        self._columns: dict[int, Array] = {}  # of what is shared, once

    def model(self, weights: TransformerWeights) -> TransformerWeights:
        return replace(
            weights,
            source=self._stack(weights.source),
            target=self._stack(weights.target),
            output=Linear(self._read(weights.output.weight), weights.output.bias),
        )

    def _stack(self, stack: StackWeights) -> StackWeights:
        positions = stack.positions
        assert isinstance(positions, Sinusoids)
        return replace(
            stack,
            embedding=self._read(stack.embedding),
            positions=replace(positions, layout=self._layout),
            layers=tuple(map(self._layer, stack.layers)),
            norm=None if stack.norm is None else self._norm(stack.norm),
        )

    def _layer(self, layer: LayerWeights) -> LayerWeights:
        read, norm = layer.cross_attention, layer.cross_norm
        return LayerWeights(
            self._attention(layer.attention),
            self._norm(layer.self_norm),
            None if read is None else self._attention(read),
            None if norm is None else self._norm(norm),
            self._feed_forward(layer.feed_forward),
            self._norm(layer.feed_forward_norm),
        )

    def _attention(self, given: Attention) -> Attention:
        query, key, value = (self._reading(one) for one in (given.query, given.key, given.value))
        return replace(given, query=query, key=key, value=value, output=self._writing(given.output))

    def _feed_forward(self, given: FeedForward) -> FeedForward:
        gate = None if given.gate is None else self._reading(given.gate)
        return replace(given, inner=self._reading(given.inner), gate=gate, outer=self._writing(given.outer))

    def _reading(self, linear: Linear) -> Linear:
        return replace(linear, weight=self._read(linear.weight))

    def _read(self, matrix: Array) -> Array:
        if id(matrix) not in self._columns:
            self._columns[id(matrix)] = matrix[:, self._order]
        return self._columns[id(matrix)]

    def _writing(self, linear: Linear) -> Linear:
        return Linear(linear.weight[self._order], None if linear.bias is None else linear.bias[self._order])

    def _norm(self, norm: Norm) -> Norm:
        return replace(
            norm, weight=norm.weight[self._order], bias=None if norm.bias is None else norm.bias[self._order]
        )

"""Changes of a model's arrays that leave its translations the same: another order of the residual stream, no zero biases.

Sinusoids in halves and interleaved ones differ only in the order of D. Reordering every array along D converts the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nmt.data.vocabulary import Ints
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids
from nmt.models.transformer.weights import Array, TransformerWeights, arrays_of, map_arrays

ORIGINAL_LAYOUT = "nmt_sinusoid_layout"  # key of config.json: the layout of the model that was exported
_READS = re.compile(r".*\.(embedding|(query|key|value|inner|gate)\.weight)|output\.weight")  # from the stream: columns
_WRITES = re.compile(r".*(attention\.output|outer|norm)\.(weight|bias)")  # to the stream: rows
_ATTENTION_BIAS = re.compile(r".*attention\.(query|key|value|output)\.bias")


def map_named_arrays(function: Callable[[str, Array], Array | None], weights: TransformerWeights) -> TransformerWeights:
    """Return the model with ``function(name, array)`` for each array. None removes a bias; shared arrays stay shared."""
    changed = {id(array): function(name, array) for name, array in arrays_of(weights)}
    return map_arrays(lambda array: changed[id(array)], weights)


def in_halves(weights: TransformerWeights) -> TransformerWeights:
    """Return the same model with sines in the first half of D and cosines in the second."""
    return _reordered(weights, _sines_first(weights.width), SinusoidLayout.halves)


def interleaved(weights: TransformerWeights) -> TransformerWeights:
    """Undo ``in_halves``."""
    return _reordered(weights, np.argsort(_sines_first(weights.width)), SinusoidLayout.interleaved)


def without_zero_biases(weights: TransformerWeights) -> TransformerWeights:
    """Return the same model without the biases of its attentions, if all of them are zero."""
    if any(_ATTENTION_BIAS.fullmatch(name) and array.any() for name, array in arrays_of(weights)):
        return weights
    return map_named_arrays(lambda name, array: None if _ATTENTION_BIAS.fullmatch(name) else array, weights)


def _sines_first(width: int) -> Ints:
    return np.concatenate([np.arange(0, width, 2), np.arange(1, width, 2)])


def _reordered(weights: TransformerWeights, order: Ints, layout: SinusoidLayout) -> TransformerWeights:
    def reorder(name: str, array: Array) -> Array:
        if _READS.fullmatch(name):
            return array[:, order]
        return array[order] if _WRITES.fullmatch(name) else array

    stacks = weights.source, weights.target
    positions = [replace(stack.positions, layout=layout) for stack in stacks if isinstance(stack.positions, Sinusoids)]
    source, target = (replace(stack, positions=own) for stack, own in zip(stacks, positions, strict=True))
    return map_named_arrays(reorder, replace(weights, source=source, target=target))

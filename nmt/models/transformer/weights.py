"""A plain description of a trained Transformer, for engines, importers and exporters.

``own_weights.py`` maps the parameters of ``Transformer`` to it. Every matrix maps its second axis to its first:
y = x W^T + b. Token ids are those of our vocabularies: pad, unk, bos, eos first.

Shapes: V vocabulary, D model width, F inner width of a feed-forward network, H heads, R distinct distances, N
buckets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import BOS
from nmt.layers.sinusoids import Sinusoids

Array = npt.NDArray[np.floating[Any]]


class Activation(Enum):
    """The activation of a feed-forward network."""

    relu = "relu"
    gelu = "gelu"  # by the error function
    gelu_tanh = "gelu_tanh"  # approximated by tanh
    swish = "swish"  # x times the logistic function of x
    sigmoid = "sigmoid"


class PositionsInHeads(Enum):
    """Positions that self-attention applies."""

    relative = "relative"  # learned vectors of distances, in each attention
    rotary = "rotary"  # rotation of pairs of neighboring numbers
    alibi = "alibi"  # linear biases


@dataclass(frozen=True)
class LinearWeights:
    """A linear map."""

    weight: Array  # [outputs, inputs]
    bias: Array | None = None  # [outputs]


@dataclass(frozen=True)
class NormWeights:
    """A norm over D: layer normalization with a bias, RMS normalization without."""

    weight: Array
    bias: Array | None
    epsilon: float


@dataclass(frozen=True)
class Distances:
    """Vectors of relative positions, from the largest distance behind to the largest ahead."""

    keys: Array  # [H, R, d_k] or, the same for all heads, [1, R, d_k]
    values: Array  # [H, R, d_v]


@dataclass(frozen=True)
class Buckets:
    """Biases of the scores of a stack's self-attentions, for each head and bucket of distances: T5."""

    table: Array  # [H, N]
    reach: int  # the distance from which all keys share the last bucket


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T) V; the outputs of ``query``, ``key`` and ``value`` are grouped by head."""

    query: LinearWeights
    key: LinearWeights
    value: LinearWeights
    output: LinearWeights
    scale: float
    distances: Distances | None = None


@dataclass(frozen=True)
class Recurrence:
    """An SSRU that replaces a decoder's self-attention.

    f_t = sigmoid(forget(x_t)), c_t = f_t c_{t-1} + (1 - f_t) input(x_t), and the output relu(c_t).
    """

    forget: LinearWeights  # [D, D]
    input: LinearWeights


@dataclass(frozen=True)
class FeedForwardWeights:
    """outer(activation(inner(x))), or outer(activation(inner(x)) * gate(x))."""

    inner: LinearWeights  # [F, D]
    outer: LinearWeights  # [D, F]
    activation: Activation = Activation.relu
    gate: LinearWeights | None = None  # [F, D]


@dataclass(frozen=True)
class LayerWeights:
    """A layer with the norm of each sublayer; encoder layers have no cross-attention."""

    self_attention: Attention | Recurrence
    self_norm: NormWeights
    cross_attention: Attention | None
    cross_norm: NormWeights | None
    feed_forward: FeedForwardWeights
    feed_forward_norm: NormWeights

    @property
    def attention(self) -> Attention:
        """The self-attention, of a layer that is not recurrent."""
        assert isinstance(self.self_attention, Attention)
        return self.self_attention


@dataclass(frozen=True)
class StackWeights:
    """An encoder or decoder: embedding times ``scale``, plus position, ``embedding_norm``, the layers, then ``norm``."""

    embedding: Array  # [V, D]
    scale: float
    positions: Array | Sinusoids | PositionsInHeads | Buckets  # an array: learned, [max_positions, D]
    layers: tuple[LayerWeights, ...]
    norm: NormWeights | None
    norm_first: bool  # pre-norm
    embedding_norm: NormWeights | None = None


@dataclass(frozen=True)
class TransformerWeights:
    """A whole model. Shared embeddings are one array."""

    source: StackWeights
    target: StackWeights
    output: LinearWeights  # [V, D]
    num_heads: int
    start: int = BOS  # the id of the decoder's first input token

    @property
    def width(self) -> int:
        return int(self.output.weight.shape[1])

    @property
    def head_size(self) -> int:
        """The width of queries and keys."""
        return len(self.source.layers[0].attention.query.weight) // self.num_heads

    @property
    def is_recurrent(self) -> bool:
        """Whether the decoder has SSRUs."""
        return isinstance(self.target.layers[0].self_attention, Recurrence)


Node = TypeVar("Node")


def arrays_of(weights: Any, kind: type = np.ndarray) -> Iterator[tuple[str, Any]]:
    """Yield every array of a description or of its part, with its path, such as "source.layers.0.self_norm.weight".

    ``kind``: the type of the leaves.
    """
    if isinstance(weights, kind):
        yield "", weights
        return
    for name, part in _parts(weights):
        for path, array in arrays_of(part, kind):
            yield f"{name}.{path}" if path else name, array


def map_arrays(function: Callable[[Any], Any], weights: Node, kind: type = np.ndarray) -> Node:
    """Return the description with ``function`` applied to each array; shared arrays stay shared."""
    changed: dict[int, Any] = {}

    def change(node: Any) -> Any:
        if isinstance(node, kind):
            if id(node) not in changed:
                changed[id(node)] = function(node)
            return changed[id(node)]
        if isinstance(node, tuple):
            return tuple(map(change, node))
        if _is_a_part(node):
            return dataclasses.replace(node, **{name: change(part) for name, part in _parts(node)})
        return node

    result: Node = change(weights)
    return result


def _parts(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, tuple):
        yield from ((str(number), part) for number, part in enumerate(node))
    elif _is_a_part(node):
        yield from ((field.name, getattr(node, field.name)) for field in dataclasses.fields(node))


def _is_a_part(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, (type, Sinusoids))

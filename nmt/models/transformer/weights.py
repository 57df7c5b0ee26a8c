"""A trained Transformer as plain numbers under plain names: what engines translate with, and what other toolkits' models are
read into and written from. ``own_weights.py`` says where our own parameters stand in it.

Every matrix maps its second axis to its first: y = x W^T + b. Pieces stand as in our vocabularies: pad, unk, bos, eos first.

Shapes: V vocabulary, D model width, F inner width of a feed-forward network, H heads, R distances that are told apart.
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
    """What stands between the two matrices of a feed-forward network."""

    relu = "relu"
    gelu = "gelu"  # by the error function
    swish = "swish"  # x times the logistic function of x
    sigmoid = "sigmoid"


class PositionsInHeads(Enum):
    """Positions that enter inside self-attention, not at the embeddings."""

    relative = "relative"  # by learned vectors of distances, which stand in each attention
    rotary = "rotary"  # by turning pairs of neighbouring numbers
    alibi = "alibi"  # by slopes


@dataclass(frozen=True)
class Linear:
    """A linear map."""

    weight: Array  # [outputs, inputs]
    bias: Array | None = None  # [outputs]


@dataclass(frozen=True)
class Norm:
    """A norm over D. With a shift it is layer normalisation, without one it divides by the root of the mean square."""

    weight: Array
    bias: Array | None
    epsilon: float


@dataclass(frozen=True)
class Distances:
    """Vectors of relative positions, from the farthest that is told apart behind a position to that ahead of it."""

    keys: Array  # [H, R, d_k] or, the same for all heads, [1, R, d_k]
    values: Array  # [H, R, d_v]


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T) V; the outputs of ``query``, ``key`` and ``value`` stand by head."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    scale: float
    distances: Distances | None = None


@dataclass(frozen=True)
class Recurrence:
    """An SSRU in place of a decoder's self-attention: f = sigmoid(forget(x)), the cell c = f c' + (1 - f) input(x) with that
    of the position before, and relu(c)."""

    forget: Linear  # [D, D]
    input: Linear


@dataclass(frozen=True)
class FeedForward:
    """outer(activation(inner(x))), or outer(activation(inner(x)) * gate(x))."""

    inner: Linear  # [F, D]
    outer: Linear  # [D, F]
    activation: Activation = Activation.relu
    gate: Linear | None = None  # [F, D]


@dataclass(frozen=True)
class LayerWeights:
    """A layer with the norm of each sublayer; an encoder's reads no memory."""

    self_attention: Attention | Recurrence
    self_norm: Norm
    cross_attention: Attention | None
    cross_norm: Norm | None
    feed_forward: FeedForward
    feed_forward_norm: Norm

    @property
    def attention(self) -> Attention:
        """The self-attention of a layer that has some, as every layer of an encoder has."""
        assert isinstance(self.self_attention, Attention)
        return self.self_attention


@dataclass(frozen=True)
class StackWeights:
    """An encoder or a decoder: embedding times ``scale``, plus position, then the layers, then ``norm`` if there is one."""

    embedding: Array  # [V, D]
    scale: float
    positions: Array | Sinusoids | PositionsInHeads  # an array: [most positions, D], learned
    layers: tuple[LayerWeights, ...]
    norm: Norm | None
    norm_first: bool  # before each sublayer, and not after it


@dataclass(frozen=True)
class TransformerWeights:
    """The whole model. ``output.weight`` and the embeddings may be one array: then the model shares them."""

    source: StackWeights
    target: StackWeights
    output: Linear  # [V, D]
    num_heads: int
    start: int = BOS  # the id of the piece that the decoder reads first

    @property
    def width(self) -> int:
        return int(self.output.weight.shape[1])

    @property
    def head_size(self) -> int:
        """Of queries and keys."""
        return len(self.source.layers[0].attention.query.weight) // self.num_heads

    @property
    def is_recurrent(self) -> bool:
        """Whether the decoder has SSRUs in place of self-attention."""
        return isinstance(self.target.layers[0].self_attention, Recurrence)


Node = TypeVar("Node")


def arrays_of(weights: Any, kind: type = np.ndarray) -> Iterator[tuple[str, Any]]:
    """Every array of a description, or of a part of it, with its place: "source.layers.0.self_norm.weight". ``kind``: what
    stands where the arrays do."""
    if isinstance(weights, kind):
        yield "", weights
        return
    for name, part in _parts(weights):
        for place, array in arrays_of(part, kind):
            yield f"{name}.{place}" if place else name, array


def map_arrays(function: Callable[[Any], Any], weights: Node, kind: type = np.ndarray) -> Node:
    """The same description with ``function`` applied to each array; what is one array stays one."""
    made: dict[int, Any] = {}

    def change(node: Any) -> Any:
        if isinstance(node, kind):
            if id(node) not in made:
                made[id(node)] = function(node)
            return made[id(node)]
        if isinstance(node, tuple):
            return tuple(map(change, node))
        if _is_a_part(node):
            return dataclasses.replace(node, **{name: change(part) for name, part in _parts(node)})
        return node

    changed: Node = change(weights)
    return changed


def _parts(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, tuple):
        yield from ((str(number), part) for number, part in enumerate(node))
    elif _is_a_part(node):
        yield from ((field.name, getattr(node, field.name)) for field in dataclasses.fields(node))


def _is_a_part(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, (type, Sinusoids))

"""A trained Transformer as plain numbers under plain names, for what translates with it or writes it for another toolkit.

Every matrix maps its second axis to its first: y = x W^T + b. Arrays are views of what was loaded wherever they can be.

Shapes: V vocabulary, D model width, F inner width of a feed-forward network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nmt.errors import UsageError
from nmt.models.config import shares_embeddings
from nmt.models.transformer.config import (
    WITHOUT_SELF_ATTENTION,
    FeedForwardKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    TransformerConfig,
    other_than,
)
from nmt.storage.checkpoints import require_shapes, shapes_of

if TYPE_CHECKING:
    from nmt.data.vocabulary import VocabularySizes

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Linear:
    """A linear map."""

    weight: Array  # [outputs, inputs]
    bias: Array | None = None  # [outputs]


@dataclass(frozen=True)
class Norm:
    """A norm over D, with a gain and a shift."""

    weight: Array
    bias: Array
    epsilon: float = 1e-5  # torch's


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T) V; the outputs of ``query``, ``key`` and ``value`` stand by head."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    scale: float


@dataclass(frozen=True)
class FeedForward:
    """outer(max(0, inner(x)))"""

    inner: Linear  # [F, D]
    outer: Linear  # [D, F]


@dataclass(frozen=True)
class LayerWeights:
    """A layer with the norm of each sublayer; an encoder's reads no memory."""

    self_attention: Attention
    self_norm: Norm
    cross_attention: Attention | None
    cross_norm: Norm | None
    feed_forward: FeedForward
    feed_forward_norm: Norm


@dataclass(frozen=True)
class StackWeights:
    """An encoder or a decoder: embedding times ``scale``, plus position, then the layers, then ``norm`` if there is one."""

    embedding: Array  # [V, D]
    scale: float
    positions: Array | None  # [most positions, D] learned ones; None: the paper's sinusoids
    layers: tuple[LayerWeights, ...]
    norm: Norm | None


@dataclass(frozen=True)
class TransformerWeights:
    """The whole model. ``output`` may be an embedding's own array."""

    source: StackWeights
    target: StackWeights
    output: Linear  # [V, D]
    num_heads: int
    norm_first: bool  # before each sublayer, and not after it

    @property
    def width(self) -> int:
        return int(self.output.weight.shape[1])


def sinusoids(count: int, width: int) -> npt.NDArray[np.float32]:
    """[count, D]: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i + 1) = cos of the same (section 3.5 of the paper)."""
    angles = np.arange(count)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    table = np.empty((count, width), dtype=np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table


# Options, and their values that have a place in the description.
_PLAIN = {
    **WITHOUT_SELF_ATTENTION,
    "norm_kind": (NormKind.layer_norm,),
    "feed_forward": (FeedForwardKind.relu,),
    "attention_score": (ScoreKind.scaled_dot, ScoreKind.dot),
}


def undescribed(config: object) -> str | None:
    """What of a model's options has no place in the description; None: all of it has."""
    return next(other_than(_PLAIN, config), None) if type(config) is TransformerConfig else "its architecture"


def describe(
    config: TransformerConfig, sizes: VocabularySizes, stored: Mapping[str, Array], origin: str
) -> TransformerWeights:
    """The description of a model with these options and parameters (by their names in its state), from ``origin``."""
    missing = undescribed(config)
    if missing is not None:
        raise UsageError(f"{missing} has no place in the description of a Transformer's weights")
    reader = _Reader(config, sizes, stored)
    weights = reader.model()
    require_shapes(reader.shapes, shapes_of(stored), origin)
    return weights


@dataclass
class _Reader:
    """Parameters of our own Transformer by what they are, and in ``shapes`` what each of them should be like."""

    config: TransformerConfig
    sizes: VocabularySizes
    stored: Mapping[str, Array]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def model(self) -> TransformerWeights:
        config, width = self.config, self.config.d_model
        joint = shares_embeddings(config.share_all_embeddings, self.sizes.shared)
        source = target = self._array("source_input.embedding.table.weight", self.sizes.source, width)
        if not joint:
            target = self._array("target_input.embedding.table.weight", self.sizes.target, width)
        shares_output = joint or config.share_decoder_embeddings
        output = Linear(target) if shares_output else self._linear("output", self.sizes.target, width)
        return TransformerWeights(
            self._stack("encoder", "source_input", source, config.encoder_layers),
            self._stack("decoder", "target_input", target, config.decoder_layers),
            output,
            config.num_heads,
            config.norm is NormOrder.pre,
        )

    def _stack(self, name: str, input_name: str, embedding: Array, count: int) -> StackWeights:
        config, positions = self.config, None
        if config.positions is PositionKind.learned:
            positions = self._array(f"{input_name}.positions.weight", config.max_positions, config.d_model)
        layers = tuple(self._layer(f"{name}.layers.{number}", name == "decoder") for number in range(count))
        norm = self._norm(f"{name}.norm") if config.norm is NormOrder.pre else None
        return StackWeights(embedding, math.sqrt(config.d_model), positions, layers, norm)

    def _layer(self, name: str, reads: bool) -> LayerWeights:
        width, inner = self.config.d_model, self.config.d_ff
        return LayerWeights(
            self._attention(f"{name}.self_attention", joint="projection"),
            self._norm(f"{name}.self_residual.norm"),
            self._attention(f"{name}.cross_attention", joint="memory") if reads else None,
            self._norm(f"{name}.cross_residual.norm") if reads else None,
            FeedForward(
                self._linear(f"{name}.feed_forward.inner", inner, width, bias=True),
                self._linear(f"{name}.feed_forward.outer", width, inner, bias=True),
            ),
            self._norm(f"{name}.feed_forward_residual.norm"),
        )

    def _attention(self, name: str, joint: str) -> Attention:
        """``joint``: the name of the matrix that makes keys and values, in self-attention the queries too."""
        width, bias, heads = self.config.d_model, self.config.attention_bias, self.config.head_sizes()
        parts = [heads.keys, heads.values] if joint == "memory" else [heads.keys, heads.keys, heads.values]
        made = _split(self._linear(f"{name}.{joint}", sum(parts), width, bias=bias), parts)
        if joint == "memory":
            made = [self._linear(f"{name}.query", heads.keys, width, bias=bias), *made]
        query, key, value = made
        output = self._linear(f"{name}.output", width, heads.values, bias=bias)
        scale = heads.d_k**-0.5 if self.config.attention_score is ScoreKind.scaled_dot else 1.0
        return Attention(query, key, value, output, scale)

    def _linear(self, name: str, outputs: int, inputs: int, *, bias: bool = False) -> Linear:
        weight = self._array(f"{name}.weight", outputs, inputs)
        return Linear(weight, self._array(f"{name}.bias", outputs) if bias else None)

    def _norm(self, name: str) -> Norm:
        width = self.config.d_model
        return Norm(self._array(f"{name}.weight", width), self._array(f"{name}.bias", width))

    def _array(self, name: str, *shape: int) -> Array:
        """Of this shape in any case, so that all that differs can be said at once."""
        self.shapes[name] = shape
        found = self.stored.get(name)
        return found if found is not None and found.shape == shape else np.broadcast_to(np.float32(0.0), shape)


def _split(linear: Linear, sizes: Sequence[int]) -> list[Linear]:
    """The maps that stand one below the other in a joint matrix."""
    at = np.cumsum(sizes)[:-1]
    weights = np.split(linear.weight, at)
    biases = [None] * len(weights) if linear.bias is None else np.split(linear.bias, at)
    return [Linear(weight, bias) for weight, bias in zip(weights, biases)]

"""Layers under the names that fairseq gave their tensors, and Hugging Face's Marian, Pegasus and FSMT took over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.errors import DataError
from nmt.formats.tensors import Tensors
from nmt.models.transformer.weights import Activation, Attention, FeedForward, LayerWeights, Linear, Norm

EPSILON = 1e-5  # torch's, which these models leave as it is
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")


@dataclass(frozen=True)
class LayerReader:
    """Reads the layers of a model."""

    tensors: Tensors
    width: int
    heads: int
    activation: Activation

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise DataError(
                f"{self.tensors.origin} has the width {self.width} and {self.heads} heads: the width must be even, and a "
                f"multiple of the heads"
            )

    def layer(self, name: str, *, reads: bool) -> LayerWeights:
        """``reads``: a memory, as a decoder's does."""
        return LayerWeights(
            self._attention(f"{name}.self_attn"),
            self.norm(f"{name}.self_attn_layer_norm"),
            self._attention(f"{name}.encoder_attn") if reads else None,
            self.norm(f"{name}.encoder_attn_layer_norm") if reads else None,
            self._feed_forward(name),
            self.norm(f"{name}.final_layer_norm"),
        )

    def norm(self, name: str) -> Norm:
        weight, bias = (self.tensors.take(f"{name}.{part}", self.width) for part in ("weight", "bias"))
        return Norm(weight, bias, EPSILON)

    def _attention(self, name: str) -> Attention:
        query, key, value, output = (
            self.tensors.linear(f"{name}.{part}_proj", self.width, self.width) for part in ("q", "k", "v", "out")
        )
        return Attention(query, key, value, output, (self.width // self.heads) ** -0.5)

    def _feed_forward(self, name: str) -> FeedForward:
        inner: Linear = self.tensors.linear(f"{name}.fc1", None, self.width)
        outer = self.tensors.linear(f"{name}.fc2", self.width, len(inner.weight))
        return FeedForward(inner, outer, self.activation)


def count_of(options: Mapping[str, Any], name: str, origin: str) -> int | None:
    """A number of things among the options of a model, as they are stored; None if it is not there."""
    value = options.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise DataError(f"{origin}: {name}={value!r} should be a number above zero")
    return value


def require_same_sides(options: Mapping[str, Any], names: tuple[str, ...], origin: str) -> None:
    """Refuse sizes that encoder and decoder have apart."""
    for name in names:
        one, other = (count_of(options, f"{side}_{name}", origin) for side in ("encoder", "decoder"))
        if one != other:
            raise DataError(f"{origin} has encoder_{name}={one} and decoder_{name}={other}; in ours they are the same")


def dropouts_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Those that the model was trained with, as far as they are shares of a whole."""
    found = {name: number_of(options, name, default=0.0, highest=0.99) for name in DROPOUTS}
    return {name: value for name, value in found.items() if value}


def number_of(options: Mapping[str, Any], name: str, *, default: float, highest: float) -> float:
    """An option that nothing depends on: ``default`` where it is no number from zero to ``highest``."""
    value = options.get(name)
    usual = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= highest
    return float(value) if usual and value is not None else default

"""Arrays and settings of CTranslate2's Transformer: one table of names, by which models are read and written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nmt.data.vocabulary import BOS, PAD
from nmt.errors import DataError, UsageError
from nmt.formats.ctranslate2.model_file import ModelFile
from nmt.formats.layout import ArrayTable, FormatLayout, LayoutReader, Positions, same_if_equal, unusual_head_size
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    Distances,
    LinearWeights,
    PositionsInHeads,
    StackWeights,
    TransformerWeights,
    map_arrays,
)

# Slashes of the file are dots here. "layer_0" is the first element of the list "layer" in CTranslate2's specification.
LAYOUT = FormatLayout(
    layer="{side}.layer_{number}.",
    self_attention={"self_attention.linear_0.*": "query key value", "self_attention.linear_1.*": "output"},
    cross_attention={
        "attention.linear_0.*": "query",
        "attention.linear_1.*": "key value",
        "attention.linear_2.*": "output",
    },
    feed_forward={"ffn.linear_0.*": "inner", "ffn.linear_0_noact.*": "gate", "ffn.linear_1.*": "outer"},
    norms=("self_attention.layer_norm.*", "attention.layer_norm.*", "ffn.layer_norm.*"),
    final_norm="{side}.layer_norm.*",
    norm_names=("gamma", "beta"),
    embeddings=("encoder.embeddings_0.weight", "decoder.embeddings.weight"),
    output="decoder.projection",
    positions="{side}.position_encodings.encodings",
    embedding_norm="{side}.layernorm_embedding.*",
    any_head_size=True,
)
_DISTANCES = ("self_attention.relative_position_keys", "self_attention.relative_position_values")
_BUCKETS = ("self_attention.relative_attention_bias", "self_attention.relative_attention_max_distance")
ACTIVATIONS = {
    0: Activation.relu,
    1: Activation.gelu_tanh,
    2: Activation.swish,
    3: Activation.gelu,
    6: Activation.sigmoid,
}
_FORMULA_TOLERANCE, _BFLOAT16_TOLERANCE = 1e-3, 4e-3  # between stored sinusoids and their formula
_FIRST_ROWS = 16  # enough to tell most formulas apart
_FIRST_POSITIONS = (0, 1, 2)  # the paper's, tensor2tensor's, fairseq's
_ROTARY_BASE = 10000.0
# Settings without effect in our models: how several embeddings are joined, which heads align, how slopes are scaled.
_UNUSED_SETTINGS = (
    "encoder.embeddings_merge decoder.alignment_layer decoder.alignment_heads decoder.alibi_use_positive_positions "
    "decoder.scale_alibi"
).split()


def write_specification(weights: TransformerWeights, longest: int) -> Any:
    """Return CTranslate2's specification of a model, without vocabularies. ``longest``: positions of sinusoids to store."""
    from ctranslate2.specs import common_spec, transformer_spec

    _require_supported(weights)
    weights = map_arrays(np.array, weights)  # copies, because quantization changes them in place
    first, positions = weights.source.layers[0], weights.source.positions
    options: dict[str, Any] = {
        "activation": next(
            common_spec.Activation(number)
            for number, activation in ACTIVATIONS.items()
            if activation is first.feed_forward.activation
        ),
        "ffn_glu": first.feed_forward.gate is not None,
        "rms_norm": first.self_norm.bias is None,
        "layernorm_embedding": weights.source.embedding_norm is not None,
        "relative_position": positions is PositionsInHeads.relative,
        "relative_attention_bias": isinstance(positions, Buckets),
        "rotary_dim": weights.head_size if positions is PositionsInHeads.rotary else None,
    }
    kinds = (transformer_spec.TransformerEncoderSpec, transformer_spec.TransformerDecoderSpec)
    stacks = (weights.source, weights.target)
    encoder, decoder = (
        kind(len(stack.layers), weights.num_heads, pre_norm=stack.norm_first, **options)
        for kind, stack in zip(kinds, stacks)
    )
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    arrays: dict[str, Any] = dict(LAYOUT.arrays(weights)) | _distance_arrays(weights)
    for side, stack, embedding in zip(LAYOUT.sides, stacks, LAYOUT.embeddings):
        arrays[embedding] = stack.embedding
        if isinstance(stack.positions, Sinusoids):
            arrays[LAYOUT.positions.format(side=side)] = stack.positions.table(longest)
        elif isinstance(stack.positions, np.ndarray):
            arrays[LAYOUT.positions.format(side=side)] = stack.positions
        elif isinstance(stack.positions, Buckets):
            for layer in (LAYOUT.layer_name(side, number) for number in range(len(stack.layers))):
                arrays[layer + _BUCKETS[0]] = np.ascontiguousarray(stack.positions.table.T)
                arrays[layer + _BUCKETS[1]] = np.int32(stack.positions.reach)
    arrays[f"{LAYOUT.output}.weight"] = weights.output.weight
    if weights.output.bias is not None:
        arrays[f"{LAYOUT.output}.bias"] = weights.output.bias
    for name, array in arrays.items():
        _set(spec, name, array)
    encoder.scale_embeddings, decoder.scale_embeddings = weights.source.scale, weights.target.scale
    if not math.isclose(first.attention.scale, _usual_scale(weights.width, weights.num_heads)):
        attentions = [layer.self_attention for layer in (*encoder.layer, *decoder.layer)]
        for attention in (*attentions, *(layer.attention for layer in decoder.layer)):
            attention.queries_scale = np.float32(first.attention.scale)
    return spec


def _require_supported(weights: TransformerWeights) -> None:
    if weights.is_recurrent:
        raise UsageError("CTranslate2 does not support SSRU decoders (model.decoder=ssru); export to safetensors")
    if weights.source.positions is PositionsInHeads.alibi:
        raise UsageError("CTranslate2 supports ALiBi positions only in decoders; export to another format")
    attention = weights.source.layers[0].attention
    queries, values = (len(linear.weight) // weights.num_heads for linear in (attention.query, attention.value))
    if queries != values:
        raise UsageError(
            f"CTranslate2 needs queries and values of one size, but the model's heads have {queries} and {values}; "
            f"export to another format"
        )
    if unusual_head_size(weights) is not None and isinstance(weights.source.positions, PositionsInHeads):
        raise UsageError(
            f"CTranslate2 supports {weights.source.positions.value} positions only in heads of size d_model / num_heads = "
            f"{weights.width // weights.num_heads}, but the model's have size {queries}; export to another format"
        )


def _usual_scale(width: int, heads: int) -> float:
    """Return the scale of scores that CTranslate2 takes if the file has none; it ignores the size of the matrices."""
    return 1 / math.sqrt(max(1, width // heads))


def _distance_arrays(weights: TransformerWeights) -> dict[str, Array]:
    """Return the vectors of relative positions. A decoder also stores vectors for later positions, which it never uses."""
    arrays = dict[str, Array]()
    encoder_distances = weights.source.layers[0].attention.distances
    if encoder_distances is None:
        return arrays
    rows = encoder_distances.keys.shape[1]
    for side, stack in zip(LAYOUT.sides, (weights.source, weights.target)):
        for number, layer in enumerate(stack.layers):
            distances = layer.attention.distances
            assert distances is not None
            for name, vectors in zip(_DISTANCES, (distances.keys, distances.values)):
                arrays[LAYOUT.layer_name(side, number) + name] = _for_all_heads(vectors, rows)
    return arrays


def _for_all_heads(vectors: Array, rows: int) -> Array:
    """[H, R, d] -> [rows, d], filled up with zeros."""
    if bool((vectors != vectors[:1]).any()):
        raise UsageError(
            "CTranslate2 shares the vectors of relative positions among heads, but the model has separate ones; "
            "export to another format"
        )
    filled = np.zeros((rows, vectors.shape[2]), dtype=np.float32)
    filled[: vectors.shape[1]] = vectors[0]
    return filled


def _set(spec: Any, name: str, array: Array) -> None:
    *path, attribute = name.split(".")
    for part in path:
        if hasattr(spec, part):
            spec = getattr(spec, part)
        else:  # an element of a list, such as layer_0
            list_name, index = part.rsplit("_", 1)
            spec = getattr(spec, list_name)[int(index)]
    setattr(spec, attribute, array)


def read_weights(file: ModelFile, origin: str, epsilon: float | None) -> TransformerWeights:
    """Return the model. Its embedding rows keep the order of the file's vocabularies.

    ``epsilon``: of all norms; None: CTranslate2's default. ``start`` is PAD if translations begin with zeros, else BOS.
    """
    tensors, settings = Tensors(file.arrays, origin), _Settings(file.settings, origin)
    source = tensors.take(LAYOUT.embeddings[0], None, None)
    width, heads = source.shape[1], settings.integer("encoder.num_heads")
    decoder_heads = settings.integer("decoder.num_heads")
    if decoder_heads != heads or heads < 1 or width % heads:
        raise DataError(
            f"{origin} has the width {width}, {heads} encoder heads and {decoder_heads} decoder heads; nmt needs "
            f"equal numbers of heads that divide the width"
        )
    target = same_if_equal(tensors.take(LAYOUT.embeddings[1], None, width), source)
    output = tensors.linear(LAYOUT.output, len(target), width)
    has_bias = LAYOUT.layer_name("encoder", 0) + LAYOUT.norms[0].replace("*", "beta") in tensors
    layout = LAYOUT if has_bias else replace(LAYOUT, norm_names=("gamma", ""))
    reader = _CTranslate2Layers(
        tensors, layout, width, heads, Activation.relu, epsilon or (1e-5 if has_bias else 1e-6), file, settings
    )
    weights = TransformerWeights(
        reader.described_stack("encoder", source),
        reader.described_stack("decoder", target),
        LinearWeights(same_if_equal(same_if_equal(output.weight, target), source), output.bias),
        heads,
        PAD if settings.integer("decoder.start_from_zero_embedding") else BOS,
    )
    tensors.require_all_read()
    settings.require_all_read()
    return weights


@dataclass
class _Settings:
    """The single numbers of a model file."""

    numbers: Mapping[str, Any]
    origin: str
    read: set[str] = field(default_factory=set)

    def number(self, name: str, *default: Any) -> Any:
        self.read.add(name)
        if name not in self.numbers and not default:
            raise DataError(f"{self.origin} has no {name}; it is damaged or holds another kind of model")
        return self.numbers.get(name, *default)

    def integer(self, name: str) -> int:
        value = self.number(name, 0)
        if not np.isfinite(value):
            raise DataError(f"{self.origin} has {name}={value}, which must be a whole number")
        return int(value)

    def require_all_read(self) -> None:
        """Refuse a setting that was not read, unless it is zero: CTranslate2 writes zeros for features that are off."""
        for name, value in self.numbers.items():
            if value and name not in self.read and name not in _UNUSED_SETTINGS:
                raise DataError(f"{self.origin} has {name}={value:g}, which nmt does not support")


@dataclass
class _CTranslate2Layers(LayoutReader):
    file: ModelFile
    settings: _Settings

    def described_stack(self, side: str, embedding: Array) -> StackWeights:
        norm_first = bool(self.settings.number(f"{side}.pre_norm"))
        scale, positions = self._embedding_scale(f"{side}.scale_embeddings"), self._positions(side)
        self.activation = self._activation(side)
        return self.stack(side, embedding, scale, positions, norm_first=norm_first)

    def _embedding_scale(self, name: str) -> float:
        """Read a factor, or a flag for the root of the width."""
        value, root = self.settings.number(name), math.sqrt(self.width)
        if isinstance(value, np.integer):
            return root if value else 1.0
        return root if math.isclose(value, root, rel_tol=1e-6) else float(value)

    def _positions(self, side: str) -> Positions:
        first = self.layout.layer_name(side, 0)
        if first + _DISTANCES[0] in self.tensors:
            return PositionsInHeads.relative
        if f"{first}self_attention.rotary_dim" in self.settings.numbers:
            return PositionsInHeads.rotary
        if first + _BUCKETS[0] in self.tensors:
            return self._buckets(side)
        table = self.tensors.optional(self.layout.positions.format(side=side), None, self.width)
        if table is None:
            return Sinusoids(self.width, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=1)
        return table if self.width % 2 else self._formula_or_table(table)

    def _buckets(self, side: str) -> Buckets:
        """Read the biases of a stack; each layer repeats them."""
        layers = [self.layout.layer_name(side, number) for number in range(self.layer_count(side))]
        tables = [self.tensors.take(layer + _BUCKETS[0], None, self.heads) for layer in layers]
        reaches = {self.settings.integer(layer + _BUCKETS[1]) for layer in layers}
        if len(reaches) > 1 or not all(np.array_equal(table, tables[0]) for table in tables):
            raise DataError(f"{self.tensors.origin} has other biases of positions in each layer; nmt needs equal ones")
        return Buckets(tables[0].T, reaches.pop())

    def _formula_or_table(self, table: Array) -> Array | Sinusoids:
        tolerance = _BFLOAT16_TOLERANCE if self.file.in_bfloat16 else _FORMULA_TOLERANCE
        for layout, wavelengths, offset in itertools.product(SinusoidLayout, Wavelengths, _FIRST_POSITIONS):
            formula = Sinusoids(self.width, layout, wavelengths, offset=offset)
            if all(
                np.allclose(rows, formula.table(len(rows)), atol=tolerance, rtol=0)
                for rows in (table[:_FIRST_ROWS], table)
            ):
                return formula
        return table

    def self_attention(self, layer: str, *, is_decoder: bool) -> Attention:
        self._require_our_rotation(f"{layer}self_attention")
        attention = self.attention(layer, self.layout.self_attention)
        return replace(attention, distances=self._distances(layer, is_decoder=is_decoder))

    def attention(self, layer: str, table: ArrayTable) -> Attention:
        attention = super().attention(layer, table)
        name = f"{layer}{next(iter(table)).partition('.')[0]}.queries_scale"
        scale = float(self.settings.number(name, _usual_scale(self.width, self.heads)))
        if math.isclose(scale, attention.scale, rel_tol=1e-6):
            return attention
        if scale != 1.0:
            raise DataError(f"{self.tensors.origin} has {name}={scale:g}; nmt supports only {attention.scale:g} and 1")
        return replace(attention, scale=scale)

    def _require_our_rotation(self, name: str) -> None:
        """Refuse rotary positions unless they turn pairs of neighbors over whole heads."""
        size, head_size = self.settings.number(f"{name}.rotary_dim", None), self.width // self.heads
        in_pairs = self.settings.number(f"{name}.rotary_interleave", 1)
        base = self.settings.number(f"{name}.rotary_base", _ROTARY_BASE)
        if size is not None and (size not in (0, head_size) or not in_pairs or base != _ROTARY_BASE):
            order = "in pairs" if in_pairs else "in halves"
            raise DataError(
                f"{self.tensors.origin} rotates {size} of {head_size} head dimensions, {order} and with base "
                f"{base:g}; nmt rotates all, in pairs and with base {_ROTARY_BASE:g}"
            )

    def _distances(self, layer: str, *, is_decoder: bool) -> Distances | None:
        """Read the vectors of relative positions, for all heads; a decoder's without those of later positions."""
        names, size = [layer + name for name in _DISTANCES], self.width // self.heads
        keys = self.tensors.optional(names[0], None, size)
        if keys is None:
            return None
        values = self.tensors.take(names[1], len(keys), size)
        rows = len(keys) // 2 + 1 if is_decoder else len(keys)
        return Distances(*(np.repeat(vectors[None, :rows], self.heads, axis=0) for vectors in (keys, values)))

    def _activation(self, side: str) -> Activation:
        number = self.settings.integer(f"{side}.activation")
        if number not in ACTIVATIONS:
            raise DataError(
                f"{self.tensors.origin} has {side}.activation={number}, gelu by the logistic function, or tanh; nmt "
                f"supports relu, swish, sigmoid, and gelu by erf or tanh"
            )
        return ACTIVATIONS[number]

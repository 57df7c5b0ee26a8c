"""Tensors of Hugging Face's models: fairseq's names in a model, by which models are read and written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nmt.errors import DataError
from nmt.formats.fairseq import EPSILON
from nmt.formats.fairseq import LAYOUT as FAIRSEQ_LAYOUT
from nmt.formats.layout import LayoutReader, Positions, require_whole_heads, same_if_equal
from nmt.formats.residual_stream import ORIGINAL_LAYOUT, interleaved, map_named_arrays, without_zero_biases
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, Array, LinearWeights, StackWeights, TransformerWeights

LAYOUT = replace(
    FAIRSEQ_LAYOUT,
    layer="model.{side}.layers.{number}.",
    final_norm="model.{side}.layer_norm.*",
    embeddings=("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    output="lm_head",
    positions="model.{side}.embed_positions.weight",
    embedding_norm="model.{side}.layernorm_embedding.*",
)
_SHARED = "model.shared.weight"  # the embedding of both sides
_OUTPUTS = (f"{LAYOUT.output}.weight", "model.decoder.output_projection.weight")  # FSMT's name is the second
_OUTPUT_BIAS = "final_logits_bias"  # [1, V]
_FIRST_POSITION = 2  # of fairseq
_SINUSOIDS_OF_FAIRSEQ = ("fsmt", "m2m_100")
_LEARNED = ("mbart",)  # the other kinds may lack a table, because they have a formula
# Copies of the formula in files of older versions.
_UNUSED = ("model.encoder.embed_positions.weights", "model.decoder.embed_positions.weights")
NORM_FIRST = {"marian": False, "pegasus": True, "fsmt": False, "m2m_100": True, "mbart": True}
ACTIVATIONS = {"relu": Activation.relu, "gelu": Activation.gelu, "swish": Activation.swish, "silu": Activation.swish}


def tensors_of(weights: TransformerWeights, kind: str) -> dict[str, Array]:
    """Return the tensors of a type of model. Its scores are scaled by the size of a head."""
    factor = weights.source.layers[0].attention.scale * math.sqrt(weights.head_size)
    if not math.isclose(factor, 1.0):  # queries absorb another scale
        weights = map_named_arrays(lambda name, array: array * factor if ".query." in name else array, weights)
    tensors = dict(LAYOUT.arrays(weights, zero_biases=True))
    embeddings = weights.source.embedding, weights.target.embedding
    tensors |= {_SHARED: embeddings[0]} if embeddings[0] is embeddings[1] else dict(zip(LAYOUT.embeddings, embeddings))
    if weights.output.weight is not weights.target.embedding:
        tensors[_OUTPUTS[0]] = weights.output.weight
    if kind in _LEARNED:
        for side, stack in zip(LAYOUT.sides, (weights.source, weights.target)):
            assert isinstance(stack.positions, np.ndarray)
            rows = np.zeros((_FIRST_POSITION, weights.width), dtype=np.float32), stack.positions
            tensors[LAYOUT.positions.format(side=side)] = np.concatenate(rows)
    bias = weights.output.bias
    if kind != "m2m_100":
        tensors[_OUTPUT_BIAS] = (np.zeros(len(weights.output.weight)) if bias is None else bias).reshape(1, -1)
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}


def read_weights(tensors: Tensors, config: Mapping[str, Any], start: int) -> TransformerWeights:
    """Return the model, in the order of Hugging Face's vocabularies. ``start``: our id of the decoder's first token."""
    width, heads = config["d_model"], config["encoder_attention_heads"]
    require_whole_heads(width, heads, tensors.origin)
    activation = ACTIVATIONS[config.get("activation_function", "relu")]
    reader = LayoutReader(tensors, LAYOUT, width, heads, activation, EPSILON)
    shared = tensors.unwidened(_SHARED, None, width) if _SHARED in tensors else None
    source, target = (_embedding(tensors, name, shared, width) for name in LAYOUT.embeddings)
    output = target
    for name in _OUTPUTS:
        if name in tensors:
            output = same_if_equal(tensors.unwidened(name, *target.shape), target)
    bias = tensors.optional(_OUTPUT_BIAS, 1, len(target))
    bias = None if bias is None or not bias.any() else bias.reshape(-1)
    stacks = _stack("encoder", source, reader, config), _stack("decoder", target, reader, config)
    weights = without_zero_biases(TransformerWeights(*stacks, LinearWeights(output, bias), heads, start))
    for name in _UNUSED:
        tensors.optional(name, None, width)
    tensors.require_all_read()
    if config.get(ORIGINAL_LAYOUT) != SinusoidLayout.interleaved.value:
        return weights
    if not all(isinstance(stack.positions, Sinusoids) for stack in stacks):
        raise DataError(f"{tensors.origin} has learned positions, but {ORIGINAL_LAYOUT} requires sinusoidal ones")
    return interleaved(weights)


def _embedding(tensors: Tensors, name: str, shared: Array | None, width: int) -> Array:
    """Read the embedding of a side. Files may store a shared one several times."""
    if shared is not None and name not in tensors:
        return shared
    own = tensors.unwidened(name, None, width)
    return own if shared is None else same_if_equal(own, shared)


def _stack(side: str, embedding: Array, reader: LayoutReader, config: Mapping[str, Any]) -> StackWeights:
    kind, width = config["model_type"], reader.width
    formula = Sinusoids(width, SinusoidLayout.halves)
    if kind in _SINUSOIDS_OF_FAIRSEQ:
        formula = replace(formula, wavelengths=Wavelengths.tensor2tensor, offset=_FIRST_POSITION)
    scale = math.sqrt(width) if config.get("scale_embedding") else 1.0
    count = config[f"{side}_layers"]
    if kind in _LEARNED:
        positions: Positions = reader.tensors.take(LAYOUT.positions.format(side=side), None, width)[_FIRST_POSITION:]
    else:
        positions = reader.positions(side, formula)
    return reader.stack(side, embedding, scale, positions, norm_first=NORM_FIRST[kind], count=count)

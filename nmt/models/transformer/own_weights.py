"""Mapping between the parameters of ``Transformer`` and the plain description of its weights, in both directions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.errors import DataError, UsageError
from nmt.layers.sinusoids import Sinusoids
from nmt.models.config import shares_embeddings
from nmt.models.transformer.config import (
    START_IDS,
    WITHOUT_SELF_ATTENTION,
    DecoderKind,
    FeedForwardKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    TransformerConfig,
    beyond,
)
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    Distances,
    FeedForwardWeights,
    LayerWeights,
    LinearWeights,
    NormWeights,
    PositionsInHeads,
    Recurrence,
    StackWeights,
    TransformerWeights,
    arrays_of,
    map_arrays,
)
from nmt.storage.arrays import release, widened
from nmt.storage.tensor_file import form_of, forms_of, require_forms

if TYPE_CHECKING:
    from nmt.data.vocabulary import VocabularySizes

# Options, with the values that the description supports.
_DESCRIBED = {name: values for name, values in WITHOUT_SELF_ATTENTION.items() if name != "positions"} | {
    "decoder": (DecoderKind.self_attention, DecoderKind.ssru),
    "attention_score": (ScoreKind.scaled_dot, ScoreKind.dot),
}
IN_HEADS = {PositionKind[kind.name]: kind for kind in PositionsInHeads}
# The activation of each feed-forward network, and whether it is gated.
FEED_FORWARDS = {
    FeedForwardKind.relu: (Activation.relu, False),
    FeedForwardKind.gelu: (Activation.gelu, False),
    FeedForwardKind.swish: (Activation.swish, False),
    FeedForwardKind.glu: (Activation.sigmoid, True),
    FeedForwardKind.geglu: (Activation.gelu, True),
    FeedForwardKind.swiglu: (Activation.swish, True),
    FeedForwardKind.gelu_tanh: (Activation.gelu_tanh, False),
    FeedForwardKind.geglu_tanh: (Activation.gelu_tanh, True),
}


@dataclass(frozen=True)
class ParameterRows:
    """Rows of a parameter."""

    name: str  # in the state dict
    shape: tuple[int, ...]  # of the whole parameter
    begin: int = 0
    end: int | None = None

    def of(self, parameter: Array) -> Array:
        return parameter if self.end is None else parameter[self.begin : self.end]

    @property
    def own_shape(self) -> tuple[int, ...]:
        return self.shape if self.end is None else (self.end - self.begin, *self.shape[1:])


def undescribed(config: object) -> str | None:
    """Return the first option that the description does not support; None: it supports all."""
    return beyond(_DESCRIBED, config)


def describe(
    config: TransformerConfig, sizes: VocabularySizes, stored: Mapping[str, Array], origin: str
) -> TransformerWeights:
    """Return the description of a model with these options and parameters; its arrays are views of ``stored``.

    ``origin`` names the model in error messages.
    """
    layers = config.encoder_layers + config.decoder_layers
    if layers > len(stored) and undescribed(config) is None:
        raise UsageError(
            f"{origin} holds another architecture: {layers:,} layers are more than its {len(stored)} tensors"
        )
    layout = _layout(config, sizes)
    require_forms(
        {rows.name: form_of(rows.shape) for _, rows in arrays_of(layout, ParameterRows)}, forms_of(stored), origin
    )
    return map_arrays(lambda rows: rows.of(stored[rows.name]), layout, ParameterRows)


def outline(config: TransformerConfig, sizes: VocabularySizes) -> TransformerWeights:
    """Return the description of a model whose arrays have the right shapes, but no numbers."""
    nothing = np.zeros((), dtype=np.float32)
    return map_arrays(lambda rows: np.broadcast_to(nothing, rows.own_shape), _layout(config, sizes), ParameterRows)


class Parameters(Mapping[str, Array]):
    """The parameters of a described model. Each is made when it is read, so that a large model needs little memory."""

    def __init__(self) -> None:
        self.shapes = dict[str, tuple[int, ...]]()
        self.sources = dict[str, list[tuple[str, ParameterRows, Array]]]()  # path in the description, rows, original

    def __getitem__(self, name: str) -> Array:
        """Return an array in float32: the original, if there is only one. Rows without an original are zero."""
        parts = [*{(rows, id(array)): (rows, array) for _, rows, array in self.sources[name]}.values()]
        if len(parts) == 1 and parts[0][0].end is None:
            whole = np.ascontiguousarray(widened(parts[0][1]), dtype=np.float32)
            release(parts[0][1])
            return whole
        whole = np.zeros(self.shapes[name], dtype=np.float32)
        for rows, original in parts:
            rows.of(whole)[...] = widened(original)
            release(original)
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def parameters(config: TransformerConfig, sizes: VocabularySizes, weights: TransformerWeights) -> Parameters:
    """Return the parameters of a described model, by name. Missing biases are zero."""
    layout = _layout(config, sizes)
    arrays, ours = dict(arrays_of(weights)), Parameters()
    for path, rows in arrays_of(layout, ParameterRows):
        ours.shapes[rows.name] = rows.shape
        sources = ours.sources.setdefault(rows.name, [])
        array = arrays.pop(path, None)
        if array is None and path.endswith(".bias"):
            continue
        if array is None:
            raise DataError(f"the model has no {path}; all layers need the parameters of the first layer")
        if array.shape != rows.own_shape:
            raise DataError(f"{path} of the model has shape {array.shape}, not {rows.own_shape}")
        sources.append((path, rows, array))
    if arrays:
        raise DataError(
            f"the model has {next(iter(arrays))}, which is not supported together with its other parameters"
        )
    return ours


def _layout(config: TransformerConfig, sizes: VocabularySizes) -> TransformerWeights:
    """Return the description with ``ParameterRows`` instead of arrays."""
    missing = undescribed(config)
    if missing is not None:
        raise UsageError(f"the description of a Transformer's weights does not support {missing}")
    return _Layout(config, sizes).model()


@dataclass
class _Layout:
    config: TransformerConfig
    sizes: VocabularySizes

    def model(self) -> TransformerWeights:
        config, width = self.config, self.config.d_model
        joint = shares_embeddings(config.share_all_embeddings, self.sizes.shared)
        source = target = self._parameter("source_input.embedding.table.weight", self.sizes.source, width)
        if not (joint or config.share_input_embeddings):
            target = self._parameter("target_input.embedding.table.weight", self.sizes.target, width)
        output = self._linear("output", self.sizes.target, width, bias=config.output_bias)
        if joint or config.share_decoder_embeddings:
            output = replace(output, weight=target)
        source_order, target_order = config.norm_orders()
        return TransformerWeights(
            self._stack("encoder", "source_input", source, config.encoder_layers, source_order),
            self._stack("decoder", "target_input", target, config.decoder_layers, target_order),
            output,
            config.num_heads,
            START_IDS[config.start_symbol],
        )

    def _stack(self, name: str, input_name: str, embedding: Any, count: int, order: NormOrder) -> StackWeights:
        config = self.config
        layers = tuple(self._layer(f"{name}.layers.{number}", name == "decoder") for number in range(count))
        return StackWeights(
            embedding,
            math.sqrt(config.d_model) if config.embedding_scale else 1.0,
            IN_HEADS.get(config.positions) or self._positions(name, input_name),
            layers,
            self._norm(f"{name}.norm") if order is NormOrder.pre else None,
            order is NormOrder.pre,
            self._norm(f"{input_name}.norm") if config.embedding_norm else None,
        )

    def _positions(self, name: str, input_name: str) -> Any:
        config = self.config
        if config.positions is PositionKind.learned:
            return self._parameter(f"{input_name}.positions.weight", config.max_positions, config.d_model)
        if config.positions is PositionKind.buckets:
            table = self._parameter(f"{name}.biases.weight", config.num_heads, config.position_buckets)
            return Buckets(table, config.bucket_distance)
        return config.sinusoids()

    def _layer(self, name: str, is_decoder: bool) -> LayerWeights:
        return LayerWeights(
            self._first_sublayer(f"{name}.self_attention", ahead=not is_decoder),
            self._norm(f"{name}.self_residual.norm"),
            self._cross_attention(f"{name}.cross_attention") if is_decoder else None,
            self._norm(f"{name}.cross_residual.norm") if is_decoder else None,
            self._feed_forward(f"{name}.feed_forward"),
            self._norm(f"{name}.feed_forward_residual.norm"),
        )

    def _first_sublayer(self, name: str, *, ahead: bool) -> Attention | Recurrence:
        """The self-attention, or the recurrence that replaces it."""
        if ahead or self.config.decoder is not DecoderKind.ssru:
            return self._self_attention(name, ahead=ahead)
        width = self.config.d_model
        forget = self._linear(f"{name}.forget", width, width, bias=True)
        return Recurrence(forget, self._linear(f"{name}.input", width, width, bias=False))

    def _self_attention(self, name: str, *, ahead: bool) -> Attention:
        config, heads, distances = self.config, self.config.head_sizes(), None
        if config.positions is PositionKind.relative:
            count = config.relative_distance * (2 if ahead else 1) + 1
            keys, values = (
                self._parameter(f"{name}.attend.{kind}_vectors", config.num_heads, count, size)
                for kind, size in (("key", heads.d_k), ("value", heads.d_v))
            )
            distances = Distances(keys, values)
        return self._attention(
            name, self._parts(f"{name}.projection", [heads.keys, heads.keys, heads.values]), distances
        )

    def _cross_attention(self, name: str) -> Attention:
        config, heads = self.config, self.config.head_sizes()
        query = self._linear(f"{name}.query", heads.keys, config.d_model, bias=config.attention_bias)
        return self._attention(name, [query, *self._parts(f"{name}.memory", [heads.keys, heads.values])])

    def _attention(self, name: str, inputs: list[LinearWeights], distances: Distances | None = None) -> Attention:
        config, heads = self.config, self.config.head_sizes()
        query, key, value = inputs
        output = self._linear(f"{name}.output", config.d_model, heads.values, bias=config.attention_bias)
        scale = heads.d_k**-0.5 if config.attention_score is ScoreKind.scaled_dot else 1.0
        return Attention(query, key, value, output, scale, distances)

    def _feed_forward(self, name: str) -> FeedForwardWeights:
        width, inner = self.config.d_model, self.config.d_ff
        activation, gated = FEED_FORWARDS[self.config.feed_forward]
        first, *gate = self._parts(f"{name}.inner", [inner] * (1 + gated), bias=not gated)
        return FeedForwardWeights(first, self._linear(f"{name}.outer", width, inner, bias=not gated), activation, *gate)

    def _parts(self, name: str, outputs: list[int], *, bias: bool | None = None) -> list[LinearWeights]:
        """Return the linear maps whose rows one matrix concatenates."""
        bias, total, ends = self.config.attention_bias if bias is None else bias, sum(outputs), np.cumsum(outputs)
        rows = [(int(end) - count, int(end)) for end, count in zip(ends, outputs)]
        weights: list[Any] = [ParameterRows(f"{name}.weight", (total, self.config.d_model), *span) for span in rows]
        biases: list[Any] = [ParameterRows(f"{name}.bias", (total,), *span) if bias else None for span in rows]
        return [LinearWeights(*parts) for parts in zip(weights, biases)]

    def _linear(self, name: str, outputs: int, inputs: int, *, bias: bool) -> LinearWeights:
        weight = self._parameter(f"{name}.weight", outputs, inputs)
        return LinearWeights(weight, self._parameter(f"{name}.bias", outputs) if bias else None)

    def _norm(self, name: str) -> NormWeights:
        width, is_layer_norm = self.config.d_model, self.config.norm_kind is NormKind.layer_norm
        bias = self._parameter(f"{name}.bias", width) if is_layer_norm else None
        return NormWeights(self._parameter(f"{name}.weight", width), bias, self.config.epsilon())

    def _parameter(self, name: str, *shape: int) -> Any:
        return ParameterRows(name, shape)


def configuration(weights: TransformerWeights, sizes: VocabularySizes) -> TransformerConfig:
    """Return the options of a described model; raise ``DataError`` if no options describe it."""
    source, target = weights.source, weights.target
    layers = [*source.layers, *target.layers]
    first = layers[0]
    for name, values in _same_everywhere(weights):
        if len(set(values)) > 1:
            shown = " and ".join(str(value) for value in dict.fromkeys(values))
            raise DataError(f"the model has {name} {shown}; they must be the same in all layers")
    parts = [part for layer in layers for part in (layer.self_attention, layer.cross_attention)]
    attentions = [part for part in parts if isinstance(part, Attention)]
    biases = [linear.bias for part in attentions for linear in (part.query, part.key, part.value, part.output)]
    positions = source.positions
    kind = next((kind for kind, in_heads in IN_HEADS.items() if in_heads is positions), PositionKind.learned)
    formula = positions if isinstance(positions, Sinusoids) else Sinusoids(weights.width)
    if isinstance(positions, (Sinusoids, Buckets)):
        kind = PositionKind.sinusoidal if isinstance(positions, Sinusoids) else PositionKind.buckets
    activation = first.feed_forward.activation, first.feed_forward.gate is not None
    feed_forward = next((kind for kind, form in FEED_FORWARDS.items() if form == activation), None)
    if feed_forward is None:
        raise DataError(
            f"the model's feed-forward network has activation {activation[0].value}, which is not supported"
        )
    if not any(math.isclose(source.scale, scale, rel_tol=1e-6) for scale in (1.0, math.sqrt(weights.width))):
        raise DataError(
            f"the model's embeddings are scaled by {source.scale:g}; supported are 1 and the root of their width"
        )
    all_shared = source.embedding is target.embedding is weights.output.weight
    distances = first.attention.distances
    orders = [NormOrder.pre if stack.norm_first else NormOrder.post for stack in (source, target)]
    return TransformerConfig(
        encoder_layers=len(source.layers),
        decoder_layers=len(target.layers),
        d_model=weights.width,
        d_ff=len(first.feed_forward.inner.weight),
        num_heads=weights.num_heads,
        d_k=_unless_even(weights, weights.head_size),
        d_v=_unless_even(weights, len(first.attention.value.weight) // weights.num_heads),
        positions=kind,
        max_positions=len(positions) if isinstance(positions, np.ndarray) else 1024,
        sinusoid_layout=formula.layout,
        sinusoid_wavelengths=formula.wavelengths,
        sinusoid_base=formula.base,
        position_offset=formula.offset,
        share_all_embeddings=None if all_shared and sizes.shared else False,
        share_decoder_embeddings=target.embedding is weights.output.weight,
        share_input_embeddings=source.embedding is target.embedding and not all_shared,
        embedding_scale=source.scale != 1.0,
        embedding_norm=source.embedding_norm is not None,
        output_bias=weights.output.bias is not None,
        start_symbol=next(symbol for symbol, number in START_IDS.items() if number == weights.start),
        decoder=DecoderKind.ssru if weights.is_recurrent else DecoderKind.self_attention,
        norm=orders[0],
        decoder_norm=orders[1] if orders[1] is not orders[0] else None,
        norm_epsilon=first.self_norm.epsilon,
        norm_kind=NormKind.rms_norm if first.self_norm.bias is None else NormKind.layer_norm,
        feed_forward=feed_forward,
        attention_bias=any(bias is not None for bias in biases),
        attention_score=ScoreKind.dot if first.attention.scale == 1.0 else ScoreKind.scaled_dot,
        position_buckets=positions.table.shape[1] if isinstance(positions, Buckets) else 32,
        bucket_distance=positions.reach if isinstance(positions, Buckets) else 128,
        relative_distance=16 if distances is None else distances.keys.shape[1] // 2,
    )


def _unless_even(weights: TransformerWeights, size: int) -> int | None:
    return None if size * weights.num_heads == weights.width else size


def _same_everywhere(weights: TransformerWeights) -> Iterator[tuple[str, list[object]]]:
    """Yield the properties that must be equal in both stacks and all layers."""
    stacks = [weights.source, weights.target]
    layers = [layer for stack in stacks for layer in stack.layers]
    norms = [norm for layer in layers for norm in (layer.self_norm, layer.cross_norm, layer.feed_forward_norm) if norm]
    norms += [norm for stack in stacks for norm in (stack.norm, stack.embedding_norm) if norm is not None]
    yield "widths", [stack.embedding.shape[1] for stack in stacks]
    yield "inner widths of feed-forward networks", [len(layer.feed_forward.inner.weight) for layer in layers]
    yield "activations", [layer.feed_forward.activation.value for layer in layers]
    yield "scales of embeddings", [stack.scale for stack in stacks]
    yield "epsilons of norms", [norm.epsilon for norm in norms]
    yield "norms", ["without a shift" if norm.bias is None else "with a shift" for norm in norms]
    yield "decoders with", [type(layer.self_attention).__name__ for layer in weights.target.layers]
    yield "embeddings", ["without a norm" if stack.embedding_norm is None else "with a norm" for stack in stacks]
    yield "positions", [_kind(stack.positions) for stack in stacks]


def _kind(positions: Array | Sinusoids | PositionsInHeads | Buckets) -> object:
    if isinstance(positions, Buckets):
        return f"buckets of shape {positions.table.shape} up to {positions.reach}"
    return positions.shape if isinstance(positions, np.ndarray) else positions

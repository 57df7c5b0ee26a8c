"""What translates with a trained model. A kind of engine says which models it can hold, and makes an engine of one.

torch    the model itself
graphs   the model with its steps recorded, on a GPU
native   a Transformer in C, on a CPU, on weights in few bytes
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any

from nmt.config.choices import NumberFormat, Precision
from nmt.devices import kind_of, parameter_type, require_precision, require_translating
from nmt.errors import UsageError
from nmt.models.transformer.config import (
    WITHOUT_SELF_ATTENTION,
    DecoderKind,
    FeedForwardKind,
    NormKind,
    ScoreKind,
    TransformerConfig,
    beyond,
)
from nmt.models.transformer.own_weights import describe
from nmt.native.library import library, processor
from nmt.registry import Registry

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine

logger = logging.getLogger("nmt.translation")

AUTO = "auto"
PREFERRED = ("native", "torch")  # what ``auto`` takes: the first one that can hold the model
PRECISIONS = {
    NumberFormat.float32: Precision.fp32,
    NumberFormat.bfloat16: Precision.bf16,
    NumberFormat.float16: Precision.fp16,
}


@dataclass(frozen=True)
class Wanted:
    """What an engine is asked for."""

    device: str  # "cpu", "cuda" or "cuda:1"
    number_format: NumberFormat  # of the weights


class EngineKind:
    """Makes engines of models."""

    def __init__(self, config: Any) -> None:
        """``config``: its options. None of ours has any."""

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        """Why it cannot hold the model like this, or should not where nobody asked for it; None: it can."""
        return None

    def computes_in(self, wanted: Wanted) -> NumberFormat:
        """What numbers the weights would be kept in."""
        return wanted.number_format

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        raise NotImplementedError


# builder(config) -> EngineKind
engines: Registry[EngineKind] = Registry("engine")


@engines.register("torch", make_dataclass("TorchConfig", ()))
class TorchKind(EngineKind):
    """Holds every model, on any device: the model itself, computed by torch."""

    def computes_in(self, wanted: Wanted) -> NumberFormat:
        """On a CPU in float32: fewer bytes would only slow it down."""
        return NumberFormat.float32 if kind_of(wanted.device) == "cpu" else wanted.number_format

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.search.in_torch import ModelEngine

        module = _prepared(model.module, wanted)
        return ModelEngine(module, wanted.device, longest_source=module.max_source_length())


@engines.register("graphs", make_dataclass("GraphsConfig", ()))
class GraphsKind(EngineKind):
    """The model with its steps recorded once for each shape and repeated, so that a GPU does not wait for Python.

    Of models whose steps change their shapes it translates with the model itself, and says so.
    """

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        return None if kind_of(wanted.device) == "cuda" else f"it is for NVIDIA GPUs, and the device is {wanted.device}"

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.engines.graphs import recorded_engine

        return recorded_engine(_prepared(model.module, wanted), wanted.device)


# Options of a Transformer, and their values that C knows.
IN_C = {
    **WITHOUT_SELF_ATTENTION,
    "decoder": (DecoderKind.self_attention, DecoderKind.ssru),
    "norm_kind": (NormKind.layer_norm,),
    "feed_forward": (FeedForwardKind.relu, FeedForwardKind.gelu, FeedForwardKind.swish),
    "attention_score": (ScoreKind.scaled_dot, ScoreKind.dot),
}


@engines.register("native", make_dataclass("NativeConfig", ()))
class NativeKind(EngineKind):
    """Holds Transformers that are described in full, in every number format, in C: a whole step is one call."""

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        if wanted.device != "cpu":
            return f"it is for CPUs, and the device is {wanted.device}"
        if processor() is None:
            return "the C part of nmt was not built here or is switched off"
        missing = beyond(IN_C, model.config) or _other_heads(model.config)
        return None if missing is None else f"{missing} is not in its C code"

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.engines.native import NativeEngine

        return NativeEngine(describe(model.config, model.sizes, model.arrays, model.origin), wanted.number_format)


def _other_heads(config: TransformerConfig) -> str | None:
    """What keys or values have of a width of their own: in C all heads together are as wide as the model."""
    heads = config.head_sizes()
    for name, width, together in (("d_k", heads.d_k, heads.keys), ("d_v", heads.d_v, heads.values)):
        if together != config.d_model:
            return (
                f"model.{name}={width}, of which {config.num_heads} heads are {together} wide and not {config.d_model},"
            )
    return None


def _prepared(model: EncoderDecoder, wanted: Wanted) -> EncoderDecoder:
    """In float32 on a CPU, where other numbers would slow it down, as wanted on a GPU."""
    from nmt.layers.linear import with_fixed_weights

    if kind_of(wanted.device) != "cpu":
        model = model.to(parameter_type(wanted.device, PRECISIONS[wanted.number_format]))
    return with_fixed_weights(model)


def engine_for(name: str, model: LoadedModel, wanted: Wanted) -> Engine:
    """An engine with the model; ``name``: of a kind, or ``auto``. The log says which one it is, and why it is not one that
    ``auto`` prefers."""
    reasons = list[str]()
    for candidate in PREFERRED if name == AUTO else (name,):  # the last one of those holds every model
        kind = engines.build(engines.config_class(candidate)())
        misfit = kind.misfit(model, wanted)
        if misfit is None:
            break
        if name != AUTO:
            raise UsageError(f"--engine {name} cannot take this model: {misfit}; use --engine {AUTO}")
        reasons.append(f"{candidate} one, since {misfit}")
    found = kind.computes_in(wanted)
    refused = "" if found is wanted.number_format else f", not {wanted.number_format.value}"
    why = f" (not the {' or the '.join(reasons)})" if reasons else ""
    level = logging.WARNING if refused else logging.INFO
    logger.log(level, "the %s engine translates, in %s%s%s", candidate, found.value, refused, why)
    return kind.make(model, wanted)


def choose_format(wanted: NumberFormat | None, precision: Precision, device: str) -> NumberFormat:
    """``wanted``, or else what ``precision`` stands for, where the device has it."""
    if wanted is None:
        require_translating(device, precision)
        return {of: name for name, of in PRECISIONS.items()}.get(precision, NumberFormat.float32)
    if kind_of(device) != "cpu":
        if wanted is NumberFormat.int8:
            raise UsageError("dtype int8 is for CPUs; on a GPU use --dtype bfloat16 or float16")
        require_precision(device, PRECISIONS[wanted])
    elif library() is None and wanted in (NumberFormat.int8, NumberFormat.float16):
        raise UsageError(
            f"dtype {wanted.value} on a CPU needs the C part of nmt, which was not built here or is switched off; "
            f"install nmt where there is a C compiler, or use --dtype float32"
        )
    return wanted

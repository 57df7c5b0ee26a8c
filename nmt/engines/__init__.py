"""Engines translate with a trained model. A kind of engine decides which models it supports, and makes their engines.

torch    the torch module; all models and devices
graphs   the torch module with recorded steps (CUDA graphs), on a GPU
native   a Transformer in C, on a CPU, also with quantized weights
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Any

from nmt.config.choices import NumberFormat, Precision
from nmt.devices import half_precision, kind_of, meant, parameter_type, require_precision, require_translating
from nmt.errors import UsageError
from nmt.models.transformer.config import (
    WITHOUT_SELF_ATTENTION,
    DecoderKind,
    PositionKind,
    ScoreKind,
    TransformerConfig,
    beyond,
)
from nmt.models.transformer.own_weights import describe, outline
from nmt.native.library import library, processor
from nmt.registry import Registry

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder
    from nmt.models.loading import LoadedModel, TranslatingModel
    from nmt.search.decoding import Engine

logger = logging.getLogger("nmt.translation")

AUTO = "auto"
PREFERRED = ("native", "torch")  # ``auto`` is the first one that supports the model
PRECISIONS = {
    NumberFormat.float32: Precision.fp32,
    NumberFormat.bfloat16: Precision.bf16,
    NumberFormat.float16: Precision.fp16,
}


@dataclass(frozen=True)
class EngineSpec:
    """The device and the number format that an engine is made for."""

    device: str  # "cpu", "cuda" or "cuda:1"
    number_format: NumberFormat  # of the weights


class EngineKind:
    """Makes engines of models."""

    def __init__(self, config: Any) -> None:
        """``config``: its options. The kinds in this package have none."""

    def misfit(self, model: TranslatingModel, spec: EngineSpec) -> str | None:
        """Why this engine cannot or should not run the model; None if it can."""
        return None

    def computes_in(self, spec: EngineSpec) -> NumberFormat:
        """Return the number format that the weights would be kept in."""
        return spec.number_format

    def make(self, model: TranslatingModel, spec: EngineSpec) -> Engine:
        raise NotImplementedError


# builder(config) -> EngineKind
engines: Registry[EngineKind] = Registry("engine")


@engines.register("torch", make_dataclass("TorchConfig", ()))
class TorchKind(EngineKind):
    """Supports every model on every device: torch computes the module."""

    def computes_in(self, spec: EngineSpec) -> NumberFormat:
        """Return float32 on a CPU, where torch is slower in other data types."""
        return NumberFormat.float32 if kind_of(spec.device) == "cpu" else spec.number_format

    def make(self, model: TranslatingModel, spec: EngineSpec) -> Engine:
        from nmt.engines.model_engine import ModelEngine

        module = _prepared(model, spec)
        return ModelEngine(module, spec.device, longest_source=module.max_source_length())


@engines.register("graphs", make_dataclass("GraphsConfig", ()))
class GraphsKind(EngineKind):
    """Records the steps of a model once for each shape and replays them, so that a GPU does not wait for Python.

    If the shapes of a model's steps vary, it computes them without recording and logs a warning.
    """

    def misfit(self, model: TranslatingModel, spec: EngineSpec) -> str | None:
        from nmt.devices.kinds import device_of

        return None if device_of(spec.device).records else f"it needs an NVIDIA GPU, but the device is {spec.device}"

    def make(self, model: TranslatingModel, spec: EngineSpec) -> Engine:
        from nmt.engines.graphs import recorded_engine

        return recorded_engine(_prepared(model, spec), spec.device)


# Options of a Transformer, and their values that the C code supports.
IN_C = {
    **WITHOUT_SELF_ATTENTION,
    "positions": (PositionKind.sinusoidal, PositionKind.learned, PositionKind.buckets),
    "decoder": (DecoderKind.self_attention, DecoderKind.ssru),
    "attention_score": (ScoreKind.scaled_dot, ScoreKind.dot),
}


@engines.register("native", make_dataclass("NativeConfig", ()))
class NativeKind(EngineKind):
    """Supports Transformers with a plain description, in every data type. A whole step is one call of C."""

    def misfit(self, model: TranslatingModel, spec: EngineSpec) -> str | None:
        if spec.device != "cpu":
            return f"it needs a CPU, but the device is {spec.device}"
        if processor() is None:
            return "the C part of nmt was not built here or is switched off"
        missing = unsupported_in_c(model.config)
        return None if missing is None else f"the C code does not support {missing}"

    def make(self, model: TranslatingModel, spec: EngineSpec) -> Engine:
        from nmt.engines.native import NativeEngine
        from nmt.engines.packing import MappedWeights, Packing

        if model.packed is not None:
            return NativeEngine(outline(model.config, model.sizes), MappedWeights(*model.packed))
        weights = describe(model.config, model.sizes, model.arrays, model.origin)
        return NativeEngine(weights, Packing(spec.number_format, model.checksum))


def unsupported_in_c(config: Any) -> str | None:
    """Return the first option of a model that the C code does not support; None: it supports all."""
    return beyond(IN_C, config) or _other_heads(config)


def _other_heads(config: TransformerConfig) -> str | None:
    """Return the options that give keys and values different widths."""
    heads = config.head_sizes()
    return None if heads.d_k == heads.d_v else f"model.d_k={heads.d_k} with model.d_v={heads.d_v}"


def _prepared(model: TranslatingModel, spec: EngineSpec) -> EncoderDecoder:
    """Return the module for inference: in float32 on a CPU, in the data type of ``spec`` on a GPU."""
    from nmt.engines.shared_parameters import share_parameters
    from nmt.layers.linear import with_fixed_weights

    module = model.module
    if kind_of(spec.device) != "cpu":
        module = module.to(parameter_type(spec.device, PRECISIONS[spec.number_format]))
    share_parameters(module, model)
    return with_fixed_weights(module)


def engine_for(name: str, model: TranslatingModel, spec: EngineSpec) -> Engine:
    """Return an engine for a model. ``name``: of a kind, or ``auto``. The log names the engine, and why ``auto`` did not
    take a preferred one."""
    reasons = list[str]()
    for candidate in PREFERRED if name == AUTO else (name,):  # the last preferred kind supports every model
        kind = engines.build(engines.config_class(candidate)())
        misfit = kind.misfit(model, spec)
        if misfit is None:
            break
        if name != AUTO:
            raise UsageError(f"--engine {name} cannot run this model: {misfit}; use --engine {AUTO}")
        reasons.append(f"not {candidate}: {misfit}")
    number_format = kind.computes_in(spec)
    refused = "" if number_format is spec.number_format else f", not {spec.number_format.value}"
    why = f" ({'; '.join(reasons)})" if reasons else ""
    level = logging.WARNING if refused else logging.INFO
    logger.log(level, "the %s engine translates, in %s%s%s", candidate, number_format.value, refused, why)
    return kind.make(model, spec)


def choose_format(number_format: NumberFormat | None, precision: Precision, device: str) -> NumberFormat:
    """Return ``number_format``, or the data type of ``precision``. Refuse one that the device does not support."""
    if number_format is None:
        precision = meant(precision, device)
        if precision is Precision.auto and kind_of(device) != "cpu":
            precision = half_precision(device)
        require_translating(device, precision)
        return {of: name for name, of in PRECISIONS.items()}.get(precision, NumberFormat.float32)
    if kind_of(device) != "cpu":
        if number_format is NumberFormat.int8:
            raise UsageError("dtype int8 needs a CPU; on a GPU, use --dtype bfloat16 or float16")
        require_precision(device, PRECISIONS[number_format])
    elif library() is None and number_format in (NumberFormat.int8, NumberFormat.float16):
        raise UsageError(
            f"dtype {number_format.value} on a CPU needs the C part of nmt, which was not built here or is switched off; "
            f"install nmt with a C compiler, or use --dtype float32"
        )
    return number_format


def format_of(model: LoadedModel, chosen: NumberFormat | None, usual: NumberFormat) -> NumberFormat:
    """Return the data type of packed weights, which cannot be changed; of other models, ``usual``."""
    if model.packed is None:
        return usual
    stored = model.packed.number_format
    if chosen not in (None, stored):
        raise UsageError(f"--dtype {chosen.value}: {model.origin} holds weights packed in {stored.value}; omit --dtype")
    return stored

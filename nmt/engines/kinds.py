"""The kinds of engine that there are. None of them has options."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import TYPE_CHECKING

from nmt.config.choices import NumberFormat
from nmt.devices import kind_of, parameter_type
from nmt.engines import PRECISIONS, EngineKind, Wanted, engines
from nmt.models.transformer.weights import describe, undescribed
from nmt.native.library import processor

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine


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


@engines.register("native", make_dataclass("NativeConfig", ()))
class NativeKind(EngineKind):
    """Holds Transformers that are described in full, in every number format, in C: a whole step is one call."""

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        if wanted.device != "cpu":
            return f"it is for CPUs, and the device is {wanted.device}"
        if processor() is None:
            return "the C part of nmt was not built here or is switched off"
        missing = undescribed(model.config)
        return None if missing is None else f"{missing} is not in its C code"

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.engines.native.engine import NativeEngine

        return NativeEngine(describe(model.config, model.sizes, model.arrays, model.origin), wanted.number_format)


def _prepared(model: EncoderDecoder, wanted: Wanted) -> EncoderDecoder:
    """In float32 on a CPU, where other numbers would slow it down, as wanted on a GPU."""
    from nmt.layers.linear import with_fixed_weights

    if kind_of(wanted.device) != "cpu":
        model = model.to(parameter_type(wanted.device, PRECISIONS[wanted.number_format]))
    return with_fixed_weights(model)

"""The engine in C for CPUs: a Transformer's whole step in one call, on weights in few bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.engines import EngineKind, Wanted, engines
from nmt.models.transformer.weights import describe, undescribed
from nmt.native.library import processor

if TYPE_CHECKING:
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine

FEW_THREADS = 2  # in float32 one thread of C keeps up with so many of torch


@dataclass
class NativeEngineConfig:
    """No options of its own."""


@engines.register("native", NativeEngineConfig)
class NativeKind(EngineKind):
    """Holds Transformers that are described in full, in every number format."""

    def __init__(self, config: NativeEngineConfig) -> None:
        pass

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        if wanted.device != "cpu":
            return f"it is for CPUs, and the device is {wanted.device}"
        if processor() is None:
            return "the C part of nmt was not built here or is switched off"
        missing = undescribed(model.config)
        if missing is not None:
            return f"{missing} is not in its C code"
        return None

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.engines.native.engine import NativeEngine

        return NativeEngine(describe(model.config, model.sizes, model.arrays, model.origin), wanted.number_format)

"""The model itself, computed by torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.config.choices import NumberFormat
from nmt.devices import kind_of
from nmt.engines import EngineKind, Wanted, engines

if TYPE_CHECKING:
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine


@dataclass
class TorchEngineConfig:
    """No options of its own."""


@engines.register("torch", TorchEngineConfig)
class TorchEngine(EngineKind):
    """Holds every model, on any device."""

    def __init__(self, config: TorchEngineConfig) -> None:
        pass

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        return None

    def computes_in(self, wanted: Wanted) -> NumberFormat:
        """On a CPU in float32: fewer bytes would only slow it down."""
        return NumberFormat.float32 if kind_of(wanted.device) == "cpu" else wanted.number_format

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        from nmt.engines.prepared import prepared
        from nmt.search.model_decoding import ModelEngine

        module = prepared(model.module, wanted)
        return ModelEngine(module, wanted.device, longest_source=module.max_source_length())

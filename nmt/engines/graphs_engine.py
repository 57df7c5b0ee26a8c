"""The model with its steps recorded once for each shape and repeated, so that a GPU does not wait for Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmt.devices import kind_of
from nmt.engines import EngineKind, Wanted, engines

if TYPE_CHECKING:
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine


@dataclass
class GraphsEngineConfig:
    """No options of its own."""


@engines.register("graphs", GraphsEngineConfig)
class GraphsEngine(EngineKind):
    """Holds models whose steps change no shape; of others it translates with the model itself, and says so."""

    def __init__(self, config: GraphsEngineConfig) -> None:
        pass

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        return None if kind_of(wanted.device) == "cuda" else f"it is for NVIDIA GPUs, and the device is {wanted.device}"

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine:
        import torch

        from nmt.engines.graphs.replay import Replayed, replayed
        from nmt.engines.prepared import prepared
        from nmt.search.model_decoding import ModelEngine

        module = prepared(model.module, wanted)
        recorded = replayed(module, torch.device(wanted.device))

        class Forgetting(ModelEngine):
            def forget(self) -> None:
                if isinstance(recorded, Replayed):
                    recorded.forget()
                super().forget()

        limit = module.max_source_length()
        return Forgetting(recorded, wanted.device, scored=module, longest_source=limit)

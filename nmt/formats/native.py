"""Model folders of nmt whose weights are packed for the native engine, in float32 or quantized: a start maps them."""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path

from nmt import DISTRIBUTION
from nmt.config.choices import NumberFormat
from nmt.config.exchange import ExportConfig
from nmt.engines import EngineSpec, NativeKind, unsupported_in_c
from nmt.errors import UsageError
from nmt.formats import ComparedModel, Format, PortableModel, formats
from nmt.formats.translating import NmtModel
from nmt.models.loading import load_model
from nmt.models.transformer.own_weights import configuration
from nmt.native.library import processor
from nmt.storage.run_folder import MODEL
from nmt.storage.tensor_file import write_numbers


@formats.register("native", make_dataclass("NativeFormatConfig", ()))
class Native(Format):
    """Writes the weights; nmt-export copies the configuration and the tokenizers."""

    name = "native"
    library = DISTRIBUTION
    quantizes = True
    own_folders = True

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        if processor() is None:
            raise UsageError("--format native needs nmt's C part (not built or off); install nmt with a C compiler")
        if options.quantization.value not in NumberFormat.__members__:
            raise UsageError(
                f"--quantization {options.quantization.value} is not for native; use {', '.join(NumberFormat.__members__)}"
            )
        if missing := unsupported_in_c(configuration(model.weights, model.pair.sizes)):
            raise UsageError(f"the native engine does not support {missing}; export to another format")
        from nmt.engines.native import NativeModel
        from nmt.engines.packing import Packing

        packing = Packing(NumberFormat[options.quantization.value])
        NativeModel(model.weights, packing)
        panels_first = dict(sorted(packing.arrays.items(), key=lambda item: not item[0].endswith(".panels")))
        write_numbers(folder / MODEL, panels_first)

    def usage(self, model: PortableModel) -> str:
        return "Give the folder to `--path` of nmt-generate or nmt-serve, on a CPU. Other commands need the original model."

    def read_export(self, folder: Path) -> ComparedModel:
        loaded = load_model(folder, "cpu")
        assert loaded.packed is not None
        return NmtModel(NativeKind(None).make(loaded, EngineSpec("cpu", loaded.packed.number_format)), loaded.pair)

"""The options of nmt-import and nmt-export."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.common_options import OverwriteOption, PluginOption, ProgressOption, ThreadsOption
from nmt.config.cut_text import CutTextConfig
from nmt.config.option import flag, option
from nmt.config.roles import CommandConfig
from nmt.errors import UsageError


@dataclass
class ImportConfig(ProgressOption, PluginOption, OverwriteOption, CutTextConfig):
    """nmt-import: a model of another toolkit in, a model folder out; of fairseq also a binarised corpus."""

    command: ClassVar[str] = "import_"
    from_format: str = option(
        "", help="what wrote the model: fairseq, marian, huggingface, ctranslate2 or safetensors", flag="--from"
    )
    path: str = flag("", help="the model there: a file or a folder; several checkpoints joined by ':' (ensemble)")
    output: str = flag("", help="model folder to write")
    source_lang: str = flag("", help="language of the sources, such as en")
    target_lang: str = flag("", help="language of the targets, such as de")
    srcdict: str | None = flag(
        None, help="pieces of the sources; of fairseq: dict.en.txt, of Marian: vocab.spm or vocab.yml"
    )
    tgtdict: str | None = flag(None, help="the same of the targets; default: those of the sources")


class Quantization(Enum):
    """Data types of weights in CTranslate2."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"
    int8 = "int8"
    int8_float32 = "int8_float32"
    int8_float16 = "int8_float16"
    int8_bfloat16 = "int8_bfloat16"
    int16 = "int16"


FEWEST_POSITIONS = 16


@dataclass
class ExportConfig(PluginOption, ThreadsOption, OverwriteOption, CommandConfig):
    """nmt-export: a model folder in, a model of another toolkit out, read back and compared."""

    command: ClassVar[str] = "export"
    path: str = flag("", help="run folder or checkpoint")
    format: str = flag(
        "", help="what is to read it: ctranslate2, huggingface or safetensors (arrays under plain names)"
    )
    output: str = flag("", help="folder for the exported model")
    quantization: Quantization = flag(
        Quantization.float32, help="numbers of the weights, for ctranslate2: float32, float16, int8, int8_float32, ..."
    )
    longest: int = flag(2048, help="positions that are written for formats that do not compute them")
    sample: str | None = flag(None, help="file of source sentences for the comparison; default: made of random pieces")
    sentences: int = flag(50, help="so many sentences are compared")
    tolerance: float | None = flag(
        None,
        help="largest difference of log-probabilities, for a piece, at which the export counts as right; default: 1e-4, and "
        "with a quantization 0.2",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", sentences=self.sentences)
        if self.longest < FEWEST_POSITIONS:
            raise UsageError(
                f"longest={self.longest} must be at least {FEWEST_POSITIONS}: sentences have to fit (--longest)"
            )
        if self.tolerance is not None:
            require_not_negative("", tolerance=self.tolerance)

    def allowed(self) -> float:
        """Return the largest difference at which the export counts as right."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-4 if self.quantization is Quantization.float32 else 0.2

"""The options of nmt-import and nmt-export."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.common_options import (
    CutTextOptions,
    LayersOptions,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ThreadsOption,
)
from nmt.config.option import flag, option
from nmt.config.roles import CommandConfig
from nmt.errors import UsageError


@dataclass
class ImportConfig(ProgressOption, PluginOption, OverwriteOption, CutTextOptions, CommandConfig):
    """nmt-import: convert a model of another toolkit to a model folder, or data of fairseq to a corpus folder."""

    command: ClassVar[str] = "import_"
    from_format: str = option(
        "",
        help="Format of the model: fairseq, marian, huggingface, ctranslate2 or safetensors; empty: recognized by "
        "the files of the folder",
        flag="--from",
    )
    path: str = flag(
        "",
        help="Model to import: file, folder or hf://OWNER/NAME[@REVISION] (Hugging Face Hub), or a data folder of "
        "fairseq; several checkpoints joined by ':' form an ensemble",
    )
    output: str = flag(
        "", help="Model folder to write; for data of fairseq: corpus folder; empty: NAME of hf://OWNER/NAME"
    )
    source_lang: str = flag("", help="Source language, such as en; of a multilingual model: of its default direction")
    target_lang: str = flag("", help="Target language, such as de, as for --source-lang")
    srcdict: str | None = flag(
        None,
        help="Source vocabulary file: dict.en.txt (fairseq), vocab.spm or vocab.yml (Marian); null: from "
        "the folder at --path",
    )
    tgtdict: str | None = flag(None, help="Target vocabulary file; null: --srcdict, or from the folder at --path")
    languages: list[str] = flag(
        [],
        help="Languages of a multilingual model whose language tokens are kept, such as eng_Latn,deu_Latn; empty: all",
    )
    vocabulary_text: list[str] = flag(
        [],
        help="Text files, plain or compressed, whose tokens the vocabulary keeps; empty: all tokens are kept",
    )
    vocabulary_min_count: int = flag(
        1,
        help="Minimum number of occurrences of a kept token in --vocabulary-text; rarer ones are cut into smaller tokens",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", vocabulary_min_count=self.vocabulary_min_count)
        if self.vocabulary_min_count > 1 and not self.vocabulary_text:
            raise UsageError(
                "--vocabulary-min-count counts the tokens of --vocabulary-text; name text files, or omit it"
            )


class Quantization(Enum):
    """Data types of exported weights."""

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
class ExportConfig(LayersOptions, PluginOption, ThreadsOption, OverwriteOption, CommandConfig):
    """nmt-export: convert a model for another toolkit, and compare the result with the original."""

    command: ClassVar[str] = "export"
    path: str = flag("", help="Run folder, checkpoint or model folder to export")
    format: str = flag(
        "",
        help="Format of the exported model: ctranslate2, huggingface, native (model folder of nmt with packed weights) or "
        "safetensors (arrays under plain names); empty: model folder of nmt, with --push, --merge or layers to keep",
    )
    output: str = flag("", help="Folder for the exported model; empty with --push: none")
    quantization: Quantization = flag(
        Quantization.float32,
        help="Data type of the weights for native: float32, float16, bfloat16 or int8; for ctranslate2 also int8_float32, "
        "int8_float16, int8_bfloat16 or int16",
    )
    longest: int = flag(2048, help="Number of positions to write for formats that store sinusoids as a table")
    sample: str | None = flag(
        None, help="File of source sentences for the comparison with the original; null: random tokens"
    )
    sentences: int = flag(50, help="Number of sentences to compare")
    tolerance: float | None = flag(
        None,
        help="Maximum accepted difference in log-probability per token; null: 1e-4, or 0.2 with quantization",
    )
    push: str | None = flag(
        None, help="Repository on the Hugging Face Hub to upload to, hf://OWNER/NAME, created if missing; null: none"
    )
    private: bool = flag(False, help="Create the repository of --push as a private one")
    license: str | None = flag(None, help="License for the model card, such as apache-2.0; null: omitted")
    merge: bool = flag(
        False, help="Write a whole model folder of nmt from an adapter (nmt-train --lora-rank) and its base model"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", sentences=self.sentences)
        if self.longest < FEWEST_POSITIONS:
            raise UsageError(
                f"longest={self.longest} must be at least {FEWEST_POSITIONS}, so that sentences fit (--longest)"
            )
        if self.tolerance is not None:
            require_not_negative("", tolerance=self.tolerance)
        if self.private and self.push is None:
            raise UsageError("--private concerns the repository of --push hf://OWNER/NAME; add it, or omit --private")

    def allowed(self) -> float:
        """Return the largest difference at which the export counts as right."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-4 if self.quantization is Quantization.float32 else 0.2

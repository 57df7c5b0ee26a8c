"""Options that several commands share. Each is declared once, with the rule that it obeys, and mixed into the commands.

They are keyword-only: the positional arguments of a command's dataclass are its own options, and help pages and stored
configurations list them after those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt.config.checks import (
    refuse,
    require_at_most,
    require_device,
    require_not_negative,
    require_positive,
    require_threads,
)
from nmt.config.choices import InvalidText, NumberFormat, ProgressStyle, Segmentation
from nmt.config.option import FlagKind, ShortRepr, flag, threads_option

MAX_LINE_BYTES = 4 * 2**20  # no text has longer lines: beyond it a file is something else


@dataclass(kw_only=True)
class CommonOptions(ShortRepr):
    """The base of all mix-ins: each checks its own options and calls the next one."""

    def __post_init__(self) -> None:
        """The end of the chain."""


@dataclass(kw_only=True)
class OverwriteOption(CommonOptions):
    """Whether existing output may be replaced."""

    overwrite: bool = flag(False, help="Replace existing output; otherwise exit with an error")


@dataclass(kw_only=True)
class OutputOption(CommonOptions):
    """Where lines of text go."""

    output: str | None = flag(
        None, help="Output file, compressed if its name ends in .gz or .xz; null: standard output"
    )


@dataclass(kw_only=True)
class PluginOption(CommonOptions):
    """Where plugins come from."""

    user_dir: str | None = flag(
        None, help="Plugins: folders of packages, or Python files, comma-separated; null: none", kind=FlagKind.joined
    )


@dataclass(kw_only=True)
class WatchOptions(CommonOptions):
    """Whether a live page is served, and where."""

    watch: bool = flag(False, help="Serve a page with the curves of the run while it trains, on this machine only")
    watch_port: int = flag(8700, help="Port of the live page; if it is in use, the next free one; 0: any free port")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("", watch_port=self.watch_port)
        require_at_most("", 65535, watch_port=self.watch_port)


@dataclass(kw_only=True)
class ProgressOption(CommonOptions):
    """How progress is shown."""

    progress: ProgressStyle = flag(ProgressStyle.auto, help="Progress display: auto, bar, lines or none")


def invalid_text_option(default: InvalidText, skipped: str) -> Any:
    """Return the option ``on_invalid_utf8``. Commands differ in what becomes of a line that is ``skipped``."""
    text = f"Handling of lines that are not UTF-8: error, replace or skip ({skipped})"
    return flag(default, help=text, kw_only=True)


@dataclass(kw_only=True)
class ReadingOptions(CommonOptions):
    """How text is read."""

    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "as an empty line")
    max_line_bytes: int = flag(MAX_LINE_BYTES, help="Maximum line length in bytes; longer lines are an error")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", max_line_bytes=self.max_line_bytes)


@dataclass(kw_only=True)
class ThreadsOption(CommonOptions):
    """How many CPU threads compute."""

    threads: int | None = threads_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_threads("", self.threads)


@dataclass(kw_only=True)
class SeedOption(CommonOptions):
    """Where random numbers start."""

    seed: int = flag(1, help="Random seed")


@dataclass(kw_only=True)
class DeviceOption(CommonOptions):
    """Where a command computes that has no choice of precision."""

    device: str = flag("auto", help="Device: auto, cpu, cuda, cuda:N, mps, xpu or xpu:N")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_device(self.device)


@dataclass(kw_only=True)
class DirectionOptions(CommonOptions):
    """The direction of a multilingual model."""

    source_lang: str | None = flag(None, help="Source language; null: that of the model's default direction")
    target_lang: str | None = flag(None, help="Target language; null: that of the model's default direction")
    tag: str | None = flag(None, help="Another name of --target-lang")

    def __post_init__(self) -> None:
        super().__post_init__()
        contradicts = self.tag is not None and self.target_lang not in (None, self.tag)
        refuse(
            (contradicts, f"--tag {self.tag} and --target-lang {self.target_lang} are two target languages; give one")
        )
        self.target_lang = self.target_lang or self.tag


@dataclass(kw_only=True)
class LayersOptions(CommonOptions):
    """The layers of a trained Transformer to keep (LayerDrop)."""

    encoder_layers_to_keep: list[int] = flag([], help="Encoder layers to keep, counted from 1, such as 1,3; empty: all")
    decoder_layers_to_keep: list[int] = flag([], help="Decoder layers to keep, counted from 1, such as 1,3; empty: all")


@dataclass(kw_only=True)
class EngineOptions(LayersOptions):
    """What computes translations, and in which numbers."""

    dtype: NumberFormat | None = flag(
        None,
        help="Data type of the weights: float32, bfloat16, float16 or int8 (CPU only); null: from --precision, or as packed",
    )
    engine: str = flag(
        "auto",
        help="Engine: torch, native (C, on a CPU), graphs (CUDA graphs, on a GPU), a plugin's engine, or auto",
    )
    workers: int | None = flag(
        None,
        help="Number of translation processes, each with one thread on a CPU; null: one per CPU thread, or 1 on a GPU",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", workers=self.workers)


@dataclass(kw_only=True)
class CutTextOptions(CommonOptions):
    """The segmenter of another toolkit, whose vocabulary is in a separate file."""

    bpe: Segmentation = flag(
        Segmentation.none,
        help="Segmenter of another toolkit, used with its vocabulary file: sentencepiece, subword_nmt, fastbpe or none",
    )
    bpe_model: str | None = flag(
        None, help="Segmenter file: sentencepiece model, or codes (merge operations); null: none"
    )
    target_bpe_model: str | None = flag(None, help="Segmenter file of the target side; null: --bpe-model")
    moses: bool = flag(
        False, help="Split text into words and join them by the Moses rules; only with subword_nmt and fastbpe"
    )

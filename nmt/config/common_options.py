"""Options that several commands share. Each is declared once, with the rule that it obeys, and mixed into the commands.

They are keyword-only: the positional arguments of a command's dataclass are its own options, and help pages and stored
configurations list them after those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt.config.checks import require_device, require_positive, require_threads
from nmt.config.choices import InvalidText, NumberFormat, ProgressStyle
from nmt.config.option import FlagKind, flag, threads_option

MAX_LINE_BYTES = 4 * 2**20  # no text has longer lines: beyond it a file is something else


@dataclass(kw_only=True)
class CommonOptions:
    """The base of all mix-ins: each checks its own options and calls the next one."""

    def __post_init__(self) -> None:
        """The end of the chain."""


@dataclass(kw_only=True)
class OverwriteOption(CommonOptions):
    """Whether existing output may be replaced."""

    overwrite: bool = flag(False, help="replace existing output")


@dataclass(kw_only=True)
class OutputOption(CommonOptions):
    """Where lines of text go."""

    output: str | None = flag(
        None, help="file to write, compressed if its name ends in .gz or .xz; default standard output"
    )


@dataclass(kw_only=True)
class PluginOption(CommonOptions):
    """Where plugins come from."""

    user_dir: str | None = flag(
        None, help="plugins: folders of packages, or Python files; several with commas", kind=FlagKind.joined
    )


@dataclass(kw_only=True)
class ProgressOption(CommonOptions):
    """How progress is shown."""

    progress: ProgressStyle = flag(ProgressStyle.auto, help="auto, bar, lines or none")


def invalid_text_option(default: InvalidText, skipped: str) -> Any:
    """Return the option ``on_invalid_utf8``. Commands differ in what becomes of a line that is ``skipped``."""
    text = f"bytes that are not UTF-8: error, replace or skip ({skipped})"
    return flag(default, help=text, kw_only=True)


@dataclass(kw_only=True)
class ReadingOptions(CommonOptions):
    """How text is read."""

    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "an empty line")
    max_line_bytes: int = flag(MAX_LINE_BYTES, help="longest line read, in bytes")

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

    seed: int = flag(1, help="seed of everything random")


@dataclass(kw_only=True)
class DeviceOption(CommonOptions):
    """Where a command computes that has no choice of precision."""

    device: str = flag("auto", help="where the model is computed: auto, cpu, cuda, cuda:N, mps or xpu:N")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_device(self.device)


@dataclass(kw_only=True)
class TagOption(CommonOptions):
    """The target language of a model that has several."""

    tag: str | None = flag(
        None, help="language to translate into, of a model with language tags; null: that of its (first) corpus"
    )


@dataclass(kw_only=True)
class EngineOptions(CommonOptions):
    """What computes translations, and in which numbers."""

    dtype: NumberFormat | None = flag(
        None,
        help="data type of the weights: float32, bfloat16, float16 or int8 (on a CPU); null: as --precision says",
    )
    engine: str = flag(
        "auto",
        help="engine that translates: torch (the model itself), native (C, on a CPU), graphs (recorded steps, on a GPU), "
        "one of a plugin, or auto",
    )
    workers: int | None = flag(
        None,
        help="processes that translate, each with one thread on a CPU; null: one per CPU thread, and a single one on a GPU",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", workers=self.workers)

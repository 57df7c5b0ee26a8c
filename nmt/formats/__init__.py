"""Models of other toolkits: a format is one file that reads them, writes them, or does both.

What a reader gives and a writer takes is the plain description of a Transformer (nmt.models.transformer.weights) with the
tokenizers of both languages. ``importing.py`` makes a model folder of the one, ``exporting.py`` checks the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import UsageError
from nmt.models.transformer.weights import TransformerWeights
from nmt.progress import ReportPairs
from nmt.registry import Registry, import_all


@dataclass(frozen=True)
class PortableModel:
    """A model that a reader found. Its pieces stand as in ``pair``."""

    weights: TransformerWeights
    pair: LanguagePair
    training: Mapping[str, Any] = field(default_factory=dict)  # options of the model that matter in training alone
    search: Mapping[str, Any] = field(default_factory=dict)  # options of the beam search that it is used with there


class Written(ABC):
    """A model as the other toolkit reads it from disk, for the check of an export. Sentences are lists of pieces."""

    @abstractmethod
    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        """Of each target with its end, natural logarithm."""

    @abstractmethod
    def translate(self, sources: Sequence[Sequence[str]], longest: int) -> list[list[str]]:
        """By greedy search, in which toolkits have no conventions of their own; at most ``longest`` pieces, at least one."""


@dataclass(frozen=True)
class Comparison:
    """What a model that was written says beside ours."""

    sentences: int
    difference: float  # largest, of the log-probability of a translation, for one of its pieces
    equal: int  # translations


class Format:
    """A format of another toolkit. One that only reads or only writes leaves the other half as it is."""

    name = ""  # as it is registered
    library = ""  # what Hugging Face's hub calls the library that reads it, if it has a name there
    quantizes = False  # whether it has other numbers than float32
    whole = False  # its folders hold vocabularies and tokenizers, so that none is named beside them

    def __init__(self, config: Any) -> None:
        """``config``: its options. None of ours has any."""

    def import_corpus(self, given: ImportConfig, progress: ReportPairs) -> bool:
        """Make a corpus folder of ``given.path``, if that is a corpus; whether it is one."""
        return False

    def read(self, given: ImportConfig) -> list[PortableModel]:
        """The models that ``given.path`` names, of one pair of languages."""
        raise UsageError(f"models can be written in the format {self.name}, but not read from it")

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        """Into a folder that is there and empty; a UsageError says what of the model the format cannot hold."""
        raise UsageError(f"models can be read from the format {self.name}, but not written in it")

    def written(self, folder: Path) -> Written:
        """What ``write`` wrote, as the other toolkit reads it from disk. Where there is none: as an import would read it."""
        from nmt.formats.ours import read_again

        return read_again(self, folder)

    def usage(self, model: PortableModel) -> str:
        """How what was written is used, in Markdown, for its model card: an example that runs in its folder."""
        return ""


# builder(config) -> Format
formats: Registry[Format] = Registry("format")


def format_named(name: str, option: str) -> Format:
    """The format that an option of a command names."""
    if not name:
        raise UsageError(f"name the format: {option} {'|'.join(formats.names())}")
    return formats.build(formats.config_class(name)())


import_all(__name__, __path__)

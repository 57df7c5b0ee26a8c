"""Models of other toolkits: a format is one file or folder that reads models, writes them, or does both.

Readers return and writers take the plain description of a Transformer (nmt.models.transformer.weights) with the tokenizers
of both languages. A format lists its array names in one table (``layout.py``). ``importing.py`` writes a model folder from
what a reader returns; ``exporting.py`` compares an export with the model.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt import DISTRIBUTION
from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import UsageError
from nmt.models.transformer.weights import TransformerWeights
from nmt.progress import ReportPairs
from nmt.registry import Registry, import_all


@dataclass(frozen=True)
class PortableModel:
    """A model in no format: weights and tokenizers. The rows of its embeddings are in the order of our vocabularies."""

    weights: TransformerWeights
    pair: LanguagePair
    training: Mapping[str, Any] = field(default_factory=dict)  # options that only training uses, such as dropouts
    search: Mapping[str, Any] = field(default_factory=dict)  # options of the beam search in the other toolkit


class ComparedModel(ABC):
    """A model in the comparison of an export: ours, or the export. Sentences are lists of tokens."""

    @abstractmethod
    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        """Return the natural log-probability of each target, end of sentence included."""

    @abstractmethod
    def translate(self, sources: Sequence[Sequence[str]], longest: int, first: Sequence[str]) -> list[list[str]]:
        """Translate by greedy search, which all toolkits do the same way, to 1 to ``longest`` tokens after ``first``: the
        token of the target language, or nothing. Translations do not contain it."""


@dataclass(frozen=True)
class ExportComparison:
    """How an export differs from the model."""

    sentences: int
    difference: float  # largest difference of log-probability per token
    equal: int  # number of equal translations
    url: str = ""  # of the repository on the hub, if the export was uploaded


class Format:
    """A format of another toolkit. A format that only reads or only writes does not override the other methods."""

    name = ""  # in the registry
    library = ""  # name of the library that reads it on Hugging Face's hub, if there is one
    quantizes = False  # whether it can quantize weights
    has_tokenizers = False  # whether its folders hold vocabularies and tokenizers
    own_folders = False  # whether it writes the weights of model folders of nmt

    def __init__(self, config: Any) -> None:
        """``config``: its options. The formats in this package have none."""

    def recognizes(self, folder: Path) -> bool:
        """Whether a folder holds a model of this format, by the names of its files."""
        return False

    def import_corpus(self, options: ImportConfig, progress: ReportPairs) -> bool:
        """Make a corpus folder of ``options.path`` if that is a corpus. Returns whether it is."""
        return False

    def read(self, options: ImportConfig) -> list[PortableModel]:
        """Read the models at ``options.path``, all of one language pair."""
        raise UsageError(f"the format {self.name} can be exported, but not imported")

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        """Write a model into an existing empty folder. Raise UsageError if the format cannot store it."""
        raise UsageError(f"the format {self.name} can be imported, but not exported")

    def require_library(self) -> None:
        """Refuse to write if ``library`` is not installed."""
        if importlib.util.find_spec(self.library) is None:
            raise UsageError(
                f"this format needs {self.library}, which is not installed: pip install '{DISTRIBUTION}[{self.name}]'"
            )

    def read_export(self, folder: Path) -> ComparedModel | None:
        """Read an export with the other toolkit; None: it is read as an import does."""
        return None

    def usage(self, model: PortableModel) -> str:
        """Return an example for the model card in Markdown; its code runs in the folder of the export."""
        return ""


# builder(config) -> Format
formats: Registry[Format] = Registry("format")


def format_named(name: str, option: str) -> Format:
    """Return the format with a name. ``option``: the flag that named it, for messages."""
    if not name:
        method = "read" if option == "--from" else "write"
        kinds = {name: type(formats.build(formats.config_class(name)())) for name in formats.names()}
        listed = [name for name, kind in kinds.items() if getattr(kind, method) is not getattr(Format, method)]
        raise UsageError(f"name the format: {option} {'|'.join(listed)}")
    return formats.build(formats.config_class(name)())


def format_of(folder: Path) -> str:
    """Return the name of the format that recognizes a folder; empty: none does."""
    return next((name for name in formats.names() if format_named(name, "").recognizes(folder)), "")


import_all(__name__, __path__)

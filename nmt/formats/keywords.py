"""``nmt.import_model`` and ``nmt.export``: what nmt-import and nmt-export do, with their options as keyword arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.config.plain import from_keywords
from nmt.formats import Comparison, importing
from nmt.formats.exporting import export_model
from nmt.plugins import load_plugins

Config = TypeVar("Config", ImportConfig, ExportConfig)


def import_model(path: str | Path, output: str | Path, *, from_format: str, **options: Any) -> list[Path]:
    """Make the model folder ``output`` of what another toolkit wrote, or several in it where ``path`` names several models
    joined by ``:``; a corpus of fairseq becomes a corpus folder. What was written is returned.

    ``options`` are those of nmt-import: ``source_lang``, ``target_lang``, ``srcdict``, ``bpe="sentencepiece"``, ...
    """
    given = {"path": path, "output": output, "from_format": from_format, **options}
    return importing.import_model(_configuration(ImportConfig, "import_model", given))


def export(path: str | Path, output: str | Path, *, format: str, **options: Any) -> Comparison:
    """Write a run folder or a checkpoint for another toolkit into the folder ``output``, and compare what that toolkit
    reads there with the model; nothing is left if they differ.

    ``options`` are those of nmt-export: ``quantization="int8"``, ``sample``, ``tolerance``, ...
    """
    given = {"path": path, "output": output, "format": format, **options}
    return export_model(_configuration(ExportConfig, "export", given))


def _configuration(config_class: type[Config], called: str, given: dict[str, Any]) -> Config:
    config = from_keywords(config_class, given, called)
    load_plugins(config.user_dir)
    return config

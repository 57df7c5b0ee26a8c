"""``nmt.import_model`` and ``nmt.export``: what nmt-import and nmt-export do, with their options as keyword arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.formats import ExportComparison, importing
from nmt.formats.exporting import export_model
from nmt.keywords import configured


def import_model(path: str | Path, output: str | Path = "", *, from_format: str = "", **options: Any) -> list[Path]:
    """Convert a model of another toolkit to the model folder ``output``, and return the folders written.

    ``path``: also ``hf://OWNER/NAME[@REVISION]``, whose default for ``output`` is NAME. ``from_format``: the toolkit; empty:
    recognized by the files of the folder.
    Several paths joined by ``:`` become folders in ``output``. A corpus of fairseq becomes a corpus folder.

    ``options`` are those of nmt-import: ``source_lang``, ``target_lang``, ``srcdict``, ``bpe="sentencepiece"``, ...
    """
    values = {"path": path, "output": output, "from_format": from_format, **options}
    return importing.import_model(configured(ImportConfig, None, values, "import_model"))


def export(path: str | Path, output: str | Path = "", *, format: str = "", **options: Any) -> ExportComparison:
    """Write a run folder or a checkpoint for another toolkit into the folder ``output``.

    The toolkit reads it back and both models are compared. If they differ, the folder is deleted. With
    ``push="hf://OWNER/NAME"``, the folder is uploaded, and ``output`` may be left out; without ``format``, it is a model
    folder of nmt.

    ``options`` are those of nmt-export: ``quantization="int8"``, ``sample``, ``tolerance``, ...
    """
    values = {"path": path, "output": output, "format": format, **options}
    return export_model(configured(ExportConfig, None, values, "export"))

"""nmt: neural machine translation, from raw text to a self-contained model folder and translations.

``nmt.load`` gives a ``Translator`` of a trained model, ``attention`` what a model attended to, ``align`` which words of a
translation belong to which of its source, ``score`` the scores of translations. ``preprocess``, ``train``,
``average_checkpoints``, ``import_model``, ``export`` and ``compare`` do what the commands do (docs/how-to/python.md). See
``nmt.interface`` for the seam that models share. ``tokenizer``, ``model``, ``criterion``, ``batches`` and ``save`` are the
parts of a training loop of your own (docs/how-to/own-loop.md).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.averaging import average_checkpoints
    from nmt.comparing import compare
    from nmt.formats.keywords import export, import_model
    from nmt.own_loop import batches, criterion, model, save, tokenizer
    from nmt.preprocessing.from_python import preprocess
    from nmt.reporting.callbacks import Callback, Stop
    from nmt.scoring.score import score
    from nmt.training.from_python import train
    from nmt.translation import Translator, align, attention, load

__all__ = [
    "Callback",
    "Stop",
    "Translator",
    "__version__",
    "align",
    "attention",
    "average_checkpoints",
    "batches",
    "compare",
    "criterion",
    "export",
    "import_model",
    "load",
    "model",
    "preprocess",
    "save",
    "score",
    "tokenizer",
    "train",
]
__version__ = "0.2.0"

DISTRIBUTION = "nmt-toolkit"  # what pip calls it; PyPI's "nmt" is another program
DOCUMENTATION = "https://nmt-toolkit.github.io/nmt"
REPOSITORY = "https://github.com/nmt-toolkit/nmt"

_PLACES = {
    "Callback": "nmt.reporting.callbacks",
    "Stop": "nmt.reporting.callbacks",
    "Translator": "nmt.translation",
    "align": "nmt.translation",
    "attention": "nmt.translation",
    "average_checkpoints": "nmt.averaging",
    "batches": "nmt.own_loop",
    "compare": "nmt.comparing",
    "criterion": "nmt.own_loop",
    "export": "nmt.formats.keywords",
    "import_model": "nmt.formats.keywords",
    "load": "nmt.translation",
    "model": "nmt.own_loop",
    "preprocess": "nmt.preprocessing.from_python",
    "save": "nmt.own_loop",
    "score": "nmt.scoring.score",
    "tokenizer": "nmt.own_loop",
    "train": "nmt.training.from_python",
}

_MODULES = ("allocator", "errors", "plotting", "plugins", "threads")  # that the documents use as `nmt.NAME`


def __getattr__(name: str) -> Any:
    if name in _PLACES:  # imported on first use: `import nmt` must not import torch
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"nmt.{name}")
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return what completion shows: the public names, not the modules that happen to be imported."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

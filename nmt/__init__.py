"""nmt: neural machine translation, from raw text to a self-contained model folder and translations.

``nmt.load`` gives a ``Translator`` of a trained model, ``attention`` what a model attended to, ``align`` which words of a
translation belong to which of its source, ``score`` the scores of translations. ``preprocess``, ``train``,
``average_checkpoints``, ``import_model``, ``export`` and ``compare`` do what the commands do (docs/how-to/python.md). See
``nmt.interface`` for the seam that models share.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.averaging import average_checkpoints
    from nmt.comparing import compare
    from nmt.formats.keywords import export, import_model
    from nmt.preprocessing.preprocess import preprocess
    from nmt.scoring.score import score
    from nmt.training.assemble import train
    from nmt.translation import Translator, align, attention, load

__all__ = [
    "Translator",
    "__version__",
    "align",
    "attention",
    "average_checkpoints",
    "compare",
    "export",
    "import_model",
    "load",
    "preprocess",
    "score",
    "train",
]
__version__ = "0.2.0"

DISTRIBUTION = "nmt-toolkit"  # what pip calls it; PyPI's "nmt" is another program
DOCUMENTATION = "https://nmt-toolkit.github.io/nmt"
REPOSITORY = "https://github.com/nmt-toolkit/nmt"

_PLACES = {
    "Translator": "nmt.translation",
    "align": "nmt.translation",
    "attention": "nmt.translation",
    "average_checkpoints": "nmt.averaging",
    "compare": "nmt.comparing",
    "export": "nmt.formats.keywords",
    "import_model": "nmt.formats.keywords",
    "load": "nmt.translation",
    "preprocess": "nmt.preprocessing.preprocess",
    "score": "nmt.scoring.score",
    "train": "nmt.training.assemble",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:  # imported on first use: `import nmt` must not import torch
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")

"""nmt: neural machine translation, from raw text to a self-contained model folder and translations.

``nmt.load`` returns a ``Translator`` of a trained model, ``attention`` attention weights, ``align`` word alignments, and
``score`` the scores of translations. ``preprocess``, ``train``, ``average_checkpoints``, ``import_model``, ``export`` and
``compare`` do the same as the commands (docs/how-to/python.md). ``Callback`` and ``Stop`` follow and stop a run
(docs/how-to/callbacks.md). ``tokenizer``, ``model``, ``criterion``, ``batches`` and ``save`` are for your own training loop
(docs/how-to/own-loop.md). ``nmt.interface`` defines the methods of a model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a name that is imported "as" itself is public
    from nmt.averaging import average_checkpoints as average_checkpoints
    from nmt.comparing import compare as compare
    from nmt.formats.keywords import export as export
    from nmt.formats.keywords import import_model as import_model
    from nmt.own_loop import batches as batches
    from nmt.own_loop import criterion as criterion
    from nmt.own_loop import model as model
    from nmt.own_loop import save as save
    from nmt.own_loop import tokenizer as tokenizer
    from nmt.preprocessing.from_python import preprocess as preprocess
    from nmt.reporting.callbacks import Callback as Callback
    from nmt.reporting.callbacks import Stop as Stop
    from nmt.scoring.score import score as score
    from nmt.training.from_python import train as train
    from nmt.translation import Translator as Translator
    from nmt.translation import align as align
    from nmt.translation import attention as attention
    from nmt.translation import load as load

__version__ = "0.2.0"

DISTRIBUTION = "nmt-toolkit"  # what pip calls it; PyPI's "nmt" is another program
DOCUMENTATION = "https://nmt-toolkit.github.io/nmt"
REPOSITORY = "https://github.com/nmt-toolkit/nmt"

_PUBLIC = {  # by module
    "averaging": "average_checkpoints",
    "comparing": "compare",
    "formats.keywords": "export import_model",
    "own_loop": "batches criterion model save tokenizer",
    "preprocessing.from_python": "preprocess",
    "reporting.callbacks": "Callback Stop",
    "scoring.score": "score",
    "training.from_python": "train",
    "translation": "Translator align attention load",
}
_PLACES = {name: f"nmt.{module}" for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted([*_PLACES, "__version__"])

# Modules that the documents use as `nmt.NAME`.
_MODULES = ("allocator", "errors", "interface", "plotting", "plugins", "threads")


def __getattr__(name: str) -> Any:
    if name in _PLACES:  # imported on first use: `import nmt` must not import torch
        return getattr(importlib.import_module(_PLACES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"nmt.{name}")
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")


def __dir__() -> list[str]:
    """Return what completion shows: the public names, not the modules that happen to be imported."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

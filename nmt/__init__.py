"""nmt: neural machine translation, from raw text to a self-contained model folder and translations.

``from nmt import Translator`` loads a trained model; see ``nmt.interface`` for the seam that models share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nmt.translation import Translator

__all__ = ["Translator", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Translator":  # imported on first use: `import nmt` must not import torch
        from nmt.translation import Translator

        return Translator
    raise AttributeError(f"module 'nmt' has no attribute '{name}'")

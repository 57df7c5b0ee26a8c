"""One architecture a file; the options of a family stand in its config.py, which is what is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder

# builder(config, sizes: VocabularySizes) -> EncoderDecoder
# A configuration also has `shrink()`: a copy with small sizes and the same structure, for tests.
models: Registry[EncoderDecoder] = Registry("model")

import_all(__name__, __path__, CONFIG)

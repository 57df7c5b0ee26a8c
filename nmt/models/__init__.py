"""One architecture a file. A file registers itself; every module of this package is imported here."""

from __future__ import annotations

from nmt.interface import EncoderDecoder
from nmt.registry import Registry, import_all

# builder(config, sizes: VocabularySizes) -> EncoderDecoder
# A configuration also has `shrink()`: a copy with small sizes and the same structure, for tests.
models: Registry[EncoderDecoder] = Registry("model")

import_all(__name__, __path__)

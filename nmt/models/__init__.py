"""Models: one architecture in each file. Importing this package imports only each family's config.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    from nmt.interface import EncoderDecoder

# builder(config, sizes: VocabularySizes) -> EncoderDecoder
# A configuration has `shrink()`, which returns a copy with the same structure in small sizes, for tests.
models: Registry[EncoderDecoder] = Registry("model")

import_all(__name__, __path__, CONFIG)

"""Finding translations: searches know ``Decodable`` and nothing of architectures."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from nmt.interface import Decodable, Hypothesis
from nmt.registry import Registry, import_all


class Search(Protocol):
    """A way of finding translations; built once, used for any batch."""

    def __call__(
        self, model: Decodable, source: Tensor, source_lengths: Tensor, *, attention: bool = False
    ) -> list[list[Hypothesis]]:
        """For each of the B sentences its hypotheses, best first; never an empty list."""
        ...


# builder(config, nbest: int = 1) -> Search
searches: Registry[Search] = Registry("search")

import_all(__name__, __path__)

"""Searches find translations with an engine. They do not depend on model architectures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nmt.config.roles import SearchConfig
from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    from nmt.data.vocabulary import Hypothesis
    from nmt.search.decoding import Engine
    from nmt.search.requests import Sentences


class Search(Protocol):
    """A search algorithm with its options; built once, used for any batch of any engine."""

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first; at least one."""


# builder(config, nbest: int = 1) -> Search
searches: Registry[Search] = Registry("search", SearchConfig)

import_all(__name__, __path__, CONFIG)

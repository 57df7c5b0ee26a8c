"""Finding translations: searches know ``Decodable`` or an engine, and nothing of architectures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from nmt.config.roles import SearchConfig
from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.data.vocabulary import Hypothesis
    from nmt.interface import Decodable
    from nmt.search.decoding import Engine
    from nmt.search.requests import Request, Sentences


class Search(Protocol):
    """A way of finding translations; built once, used for any batch."""

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        """For each of the B sentences its hypotheses, best first; never an empty list. ``requests``: one a sentence."""


class EngineSearch(ABC):
    """A search that need not take its steps in torch: ``find`` drives an engine (nmt.search.decoding)."""

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        """See ``Search``."""
        from nmt.search.in_torch import ModelEngine
        from nmt.search.requests import Sentences

        sources = [row[:length] for row, length in zip(source.cpu().numpy(), source_lengths.tolist())]
        return self.find(ModelEngine(model, source.device), Sentences(sources, attention, requests))

    @abstractmethod
    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        """As calling does, of a batch of ids."""


# builder(config, nbest: int = 1) -> Search
searches: Registry[Search] = Registry("search", SearchConfig)

import_all(__name__, __path__, CONFIG)

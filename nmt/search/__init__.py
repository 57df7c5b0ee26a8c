"""Finding translations: searches know ``Decodable`` and nothing of architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from nmt.config.roles import SearchConfig
from nmt.registry import Registry, import_configs

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.data.hypothesis import Hypothesis, Ids
    from nmt.interface import Decodable
    from nmt.search.decoding import Engine
    from nmt.search.requests import Request


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
        ...


@runtime_checkable
class EngineSearch(Protocol):
    """A search that need not take its steps in torch: ``find`` drives an engine (nmt.search.decoding)."""

    def find(
        self,
        engine: Engine,
        sources: Sequence[Ids],
        *,
        lists: Sequence[Ids] | None = None,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]: ...


# builder(config, nbest: int = 1) -> Search
searches: Registry[Search] = Registry("search", SearchConfig)

import_configs(__name__, __path__)

"""Searches that take their steps in torch, with an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from nmt.data.batch import pad
from nmt.data.hypothesis import Ids
from nmt.search.decoding import Engine
from nmt.search.requests import Request
from nmt.search.shortlisted import Shortlisted

if TYPE_CHECKING:
    from nmt.data.hypothesis import Hypothesis
    from nmt.search import Search


class InTorch:
    """An ``EngineSearch`` made of a search."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def find(
        self,
        engine: Engine,
        sources: Sequence[Ids],
        *,
        lists: Sequence[Ids] | None = None,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        device = torch.device(engine.device)
        model = engine.decodable if lists is None else Shortlisted(engine.decodable, lists, device)
        source, lengths = (part.to(device) for part in pad(sources))
        return self._search(model, source, lengths, attention=attention, requests=requests)

"""A model as it translates here, which exports are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmt.config.exchange import ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import EOS
from nmt.formats import Format, Written
from nmt.interface import EncoderDecoder
from nmt.search import EngineSearch, searches
from nmt.search.config import GreedyConfig, LengthPenalty
from nmt.search.requests import Request, Sentences


class Ours(Written):
    """On a CPU, in float32."""

    def __init__(self, module: EncoderDecoder, pair: LanguagePair) -> None:
        from nmt.search.in_torch import ModelEngine

        self._engine = ModelEngine(module.eval(), "cpu", longest_source=module.max_source_length())
        # A translation of a model that learned little may hold specials, which no text does.
        self._ids = [
            {piece: number for number, piece in enumerate(side.vocabulary.pieces)}
            for side in (pair.source, pair.target)
        ]
        self._pieces = pair.target.vocabulary.pieces

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        from nmt.search.forced import ForcedSearch
        from nmt.search.in_torch import find_in_torch

        wanted = [Request(target=tuple(self._ids[1][piece] for piece in one)) for one in targets]
        found = find_in_torch(ForcedSearch(LengthPenalty.power, 0.0), self._engine, self._asked(sources, wanted))
        return [one[0].log_probability for one in found]

    def translate(self, sources: Sequence[Sequence[str]], longest: int) -> list[list[str]]:
        search = searches.build(GreedyConfig(max_len_a=0.0, max_len_b=longest), 1)
        assert isinstance(search, EngineSearch)
        best = [one[0] for one in search.find(self._engine, self._asked(sources))]
        return [[self._pieces[number] for number in one.tokens[: -1 if one.finished else None]] for one in best]

    def _asked(self, sources: Sequence[Sequence[str]], requests: Sequence[Request] | None = None) -> Sentences:
        ids = [np.array([*(self._ids[0][piece] for piece in one), EOS]) for one in sources]
        return Sentences(ids, requests=requests)


def read_again(reader: Format, folder: Path) -> Ours:
    """What an import would make of a folder, in memory."""
    from nmt.formats.importing import Converted

    (model,) = reader.read(ImportConfig(path=str(folder)))
    return Ours(Converted.of(model).module(), model.pair)

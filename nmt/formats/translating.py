"""A model that nmt translates with, for the comparison of an export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmt.config.exchange import ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import EOS
from nmt.formats import ComparedModel, Format
from nmt.formats.importing import Converted
from nmt.interface import EncoderDecoder
from nmt.search import searches
from nmt.search.config import GreedyConfig, LengthPenalty
from nmt.search.decoding import Engine
from nmt.search.requests import Request, Sentences


class NmtModel(ComparedModel):
    """Translates with an engine of nmt, on a CPU."""

    def __init__(self, engine: Engine, pair: LanguagePair) -> None:
        self._engine = engine
        # with specials: a poorly trained model may write them
        self._ids = [
            {piece: number for number, piece in enumerate(side.vocabulary.pieces)}
            for side in (pair.source, pair.target)
        ]
        self._pieces = pair.target.vocabulary.pieces

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        from nmt.search.forced import ForcedSearch

        requests = [Request(target=tuple(self._ids[1][piece] for piece in target)) for target in targets]
        scored = ForcedSearch(LengthPenalty.power, 0.0).find(self._engine, self._sentences(sources, requests))
        return [hypotheses[0].log_probability for hypotheses in scored]

    def translate(self, sources: Sequence[Sequence[str]], longest: int, first: Sequence[str]) -> list[list[str]]:
        requests = [Request(start=tuple(self._ids[1][piece] for piece in first))] * len(sources)
        search = searches.build(GreedyConfig(max_len_a=0.0, max_len_b=longest), 1)
        best = [hypotheses[0] for hypotheses in search.find(self._engine, self._sentences(sources, requests))]
        tokens = [hypothesis.tokens[: -1 if hypothesis.finished else None] for hypothesis in best]
        return [[self._pieces[token] for token in of_sentence] for of_sentence in tokens]

    def _sentences(self, sources: Sequence[Sequence[str]], requests: Sequence[Request]) -> Sentences:
        ids = [np.array([*(self._ids[0][piece] for piece in source), EOS]) for source in sources]
        return Sentences(ids, requests=requests)


def imported_in_memory(reader: Format, folder: Path) -> NmtModel:
    """Import a folder without writing the model."""
    (model,) = reader.read(ImportConfig(path=str(folder)))
    return computed_by_torch(Converted.of(model).module(), model.pair)


def computed_by_torch(module: EncoderDecoder, pair: LanguagePair) -> NmtModel:
    """Return a model in float32."""
    from nmt.engines.model_engine import ModelEngine

    return NmtModel(ModelEngine(module.eval(), "cpu", longest_source=module.max_source_length()), pair)

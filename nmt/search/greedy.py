"""Greedy search: at each step, the most probable token.

A beam of one finds the same, but takes 27 % more CPU time, measured with a tiny Transformer on the native engine in int8.
The time goes into candidates, back-pointers and stop rules, which a beam needs for any width. Hence greedy search has a
separate loop.

Legend: B sentences, b of them still in the batch, T steps, S source positions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from nmt.data.vocabulary import BOS, EOS, PAD, Floats, Hypothesis, Ints
from nmt.errors import DataError, UsageError
from nmt.search import searches
from nmt.search.config import GreedyConfig
from nmt.search.constraints import ForcedTokens, Rules, or_eos
from nmt.search.decoding import Decoding, Engine, Scores, first_tokens
from nmt.search.history import spread
from nmt.search.requests import Sentences, refuse_inclusion


@searches.register("greedy", GreedyConfig)
class GreedySearch:
    """Greedy search. The score of a hypothesis is its log-probability, without a length penalty."""

    def __init__(self, config: GreedyConfig, nbest: int = 1) -> None:
        if not config.finds(nbest):
            raise UsageError(f"nbest={nbest}, but greedy search finds only one hypothesis; use --search beam")
        self.config = config

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        refuse_inclusion(batch.requests, "greedy")
        lengths = batch.lengths
        forced = ForcedTokens(batch, self.config, engine.longest_targets(lengths))
        rules = Rules(self.config, batch.requests, len(lengths), 1)
        decoding = engine.begin(batch.sources, 1, batch.lists)
        tokens, scores, attended = self._search(
            decoding, first_tokens(decoding, batch, 1), forced, rules, batch.attention
        )
        ends = (tokens == EOS).argmax(1) + 1  # [B] eos included
        hypotheses = []
        for row, (end, width, limit) in enumerate(zip(ends.tolist(), lengths.tolist(), forced.limits.tolist())):
            total = float(scores[row, :end].sum())
            if math.isnan(total):
                raise DataError("the model's scores are NaN: its checkpoint is damaged or its training diverged")
            weights = None if attended is None else attended[row, :end, :width].copy()
            own = tokens[row, :end].copy(), total, total, scores[row, :end].copy(), weights
            hypotheses.append([Hypothesis(*own, finished=end < limit)])
        return hypotheses

    def _search(
        self, decoding: Decoding, tokens: Ints, forced: ForcedTokens, rules: Rules, attention: bool
    ) -> tuple[Ints, Floats, Floats | None]:
        """Return the tokens after the first ``tokens`` [B] and their log-probabilities [B, T], and the attention [B, T, S]
        if requested; missing values are 0."""
        batch = len(tokens)
        sentences = np.arange(batch)
        ids, logarithms, weights = list[Ints](), list[Floats](), list[Floats]()
        for length in itertools.count(1):
            scores = decoding.step(tokens, attention)
            if rules.any:
                scores.change(rules.changes())
            prescribed = forced.tokens(sentences, length)
            tokens, own = self._chosen(scores, prescribed, len(sentences), eos=length > rules.min_len)
            ids.append(spread(tokens, sentences, batch))
            logarithms.append(spread(own, sentences, batch))
            if attention and scores.attention is not None:
                weights.append(spread(scores.attention, sentences, batch))
            staying = np.flatnonzero(tokens != EOS)
            if len(staying) == 0:
                break
            decoding.follow(np.zeros((len(tokens), 1), dtype=np.int64), staying)
            tokens, sentences = tokens[staying], sentences[staying]
            if rules.any:
                rules.follow(tokens, staying, staying)
        return np.stack(ids, 1), np.stack(logarithms, 1), np.stack(weights, 1) if weights else None

    def _chosen(self, scores: Scores, forced: Ints | None, count: int, *, eos: bool) -> tuple[Ints, Floats]:
        """[b] the most probable token; of equal ones the first. If rules forbid all, eos. And their log-probabilities."""
        best = scores.best(np.zeros((count, 1), dtype=np.float32), 1, [PAD, BOS] if eos else [PAD, BOS, EOS])
        forced = or_eos(forced, best.totals[:, 0] == -math.inf)
        if forced is None:
            return best.tokens[:, 0], best.log_probabilities[:, 0]
        tokens = np.where(forced >= 0, forced, best.tokens[:, 0])
        return tokens, scores.log_probability(tokens, np.arange(count))

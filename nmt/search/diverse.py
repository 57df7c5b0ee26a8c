"""Beams that avoid each other: Vijayakumar et al. 2018, arXiv:1610.02424, section 4, with Hamming diversity.

Legend: B sentences, b of them still in the batch, K hypotheses of each in G groups of k, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.hypothesis import Floats, Hypothesis, Ids, Ints
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.search import searches
from nmt.search.candidates import Candidates
from nmt.search.decoding import Decoding, Engine, Scores
from nmt.search.diverse_config import DiverseBeamConfig
from nmt.search.history import History
from nmt.search.requests import Forced, Request, or_eos, refuse_inclusion
from nmt.search.rules import Rules
from nmt.search.stopping import Finished

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.interface import Decodable

_INFINITY = float("inf")


@searches.register("diverse_beam", DiverseBeamConfig)
class DiverseBeamSearch:
    """Groups choose one after the other at each position, each as a beam search of its own over k slots.

    A penalty decides what is chosen and does not stay in the totals. Each group ends by the stop rule for k hypotheses;
    what they find is ranked together, and equal translations count once.
    """

    def __init__(self, config: DiverseBeamConfig, nbest: int = 1) -> None:
        config.require_slots(nbest)
        self.config = config
        self.nbest = nbest

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        from nmt.search.model_decoding import ModelEngine, unpadded

        engine = ModelEngine(model, source.device)
        return self.find(engine, unpadded(source, source_lengths), attention=attention, requests=requests)

    def find(
        self,
        engine: Engine,
        sources: Sequence[Ids],
        *,
        lists: Sequence[Ids] | None = None,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        """The same with an engine; see ``BeamSearch.find``."""
        refuse_inclusion(requests, "diverse_beam")
        groups, lengths = self.config.groups, np.array([len(source) for source in sources])
        decoding = engine.begin(sources, self.config.beam_size, lists)
        forced = Forced(requests, lengths, self.config, engine.longest_targets(lengths))
        with np.errstate(invalid="ignore"):  # of slots that are empty
            finished, history = self._search(decoding, len(sources), forced, attention, requests)
        endings = [finished.best(lane) for lane in range(len(sources) * groups)]
        hypotheses = history.hypotheses(
            list(itertools.chain(*endings)),
            lengths.repeat(groups),
            ranked_by_model=self.config.repetition_penalty == 1.0,
        )
        counts = [sum(map(len, endings[first : first + groups])) for first in range(0, len(endings), groups)]
        found = iter(hypotheses)
        return [self._distinct(list(itertools.islice(found, count))) for count in counts]

    def _distinct(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        kept: dict[tuple[int, ...], Hypothesis] = {}
        for hypothesis in sorted(hypotheses, key=lambda one: -one.score):
            kept.setdefault(tuple(hypothesis.tokens.tolist()), hypothesis)
        return list(kept.values())[: self.nbest]

    def _search(
        self,
        decoding: Decoding,
        batch: int,
        forced: Forced,
        attention: bool,
        requests: Sequence[Request] | None,
    ) -> tuple[Finished, History]:
        """Over lanes: lane s * G + g is group g of sentence s."""
        config, groups, width = self.config, self.config.groups, self.config.beam_size // self.config.groups
        ranking = config.ranking(width, min(self.nbest, width))
        finished = Finished(ranking, forced.limits.repeat(groups))
        history = History(batch * groups, width)
        totals = np.full((batch, config.beam_size), -_INFINITY, dtype=np.float32)
        totals[:, ::width] = 0.0  # the empty hypothesis of each group
        sentences, tokens = np.arange(batch), np.full(batch * config.beam_size, BOS)
        rules, of_group = Rules(config, requests, batch, config.beam_size), np.arange(groups)
        for length in itertools.count(1):
            scores = decoding.step(tokens, attention)
            if rules.any:
                scores.change(rules.changes())
            lanes = (sentences[:, None] * groups + of_group).ravel()  # [b * G]
            found = self._candidates(scores, totals, forced.tokens(sentences, length), length, rules)
            ends = (found.tokens == EOS) & (found.totals != -_INFINITY)  # [b * G, 2k]
            ends[:, width:] = False
            if ends.any():
                finished.add(found, ends, lanes, length, width, None)
                found = found.without_eos()
            chosen = found.first(width)
            weights = scores.attention if attention else None
            history.append(lanes, chosen.parents, chosen.tokens, chosen.log_probabilities, weights)
            settled = np.all(finished.settled(lanes, chosen.totals.max(1)).reshape(-1, groups), axis=1)
            staying = np.flatnonzero(~settled)
            if len(staying) == 0:
                break
            parents = (chosen.parents.reshape(-1, groups, width) + width * of_group[:, None]).reshape(len(settled), -1)
            totals = chosen.totals.reshape(len(settled), -1)[staying]  # [b, K]
            tokens = chosen.tokens.reshape(len(settled), -1)[staying].ravel()
            if rules.any:
                rows = (np.arange(len(settled))[:, None] * config.beam_size + parents)[staying].ravel()
                rules.follow(tokens, rows, staying)
            decoding.follow(parents, staying)
            sentences = sentences[staying]
        return finished, history

    def _candidates(self, scores: Scores, totals: Floats, tokens: Ints | None, length: int, rules: Rules) -> Candidates:
        """The 2k best continuations of each lane, group after group; ``tokens`` [b] are those that must stand here."""
        config, sentences = self.config, len(totals)
        width, found = config.beam_size // config.groups, list[Candidates]()
        chosen = np.empty((sentences, 0), dtype=np.int64)  # [b, earlier groups * k], -1 where a slot is empty
        banned = [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS]
        for begin in range(0, config.beam_size, width):
            of_group = totals[:, begin : begin + width]
            own = self._best(scores, totals, begin, chosen, banned)
            given = or_eos(tokens, own.totals[:, 0] == -_INFINITY) if rules.any else tokens
            if given is not None:
                rows = np.arange(sentences)[:, None] * config.beam_size + begin + np.arange(width)
                logarithms = scores.log_probability(given.clip(min=0)[:, None].repeat(width, 1), rows)
                own = own.replace(given >= 0, Candidates.forced(of_group + logarithms, given, logarithms))
            continuing = own.without_eos().first(width)
            chosen = np.hstack([chosen, np.where(continuing.totals == -_INFINITY, -1, continuing.tokens)])
            found.append(own)
        stacked = [np.stack([getattr(one, name) for one in found], 1).reshape(-1, 2 * width) for name in _FIELDS]
        return Candidates(*stacked)

    def _best(self, scores: Scores, totals: Floats, begin: int, chosen: Ints, banned: list[int]) -> Candidates:
        """The 2k best of the group in the slots from ``begin``, ranked after a penalty for what earlier groups chose
        [b, c], which is no part of their totals. A penalty lowers a token of each of the k hypotheses, so the best are
        among as many more as there are of these."""
        width = self.config.beam_size // self.config.groups
        alone = np.full_like(totals, -_INFINITY)
        alone[:, begin : begin + width] = totals[:, begin : begin + width]
        found = scores.best(alone, 2 * width + width * chosen.shape[1], banned)
        times = (found.tokens[:, :, None] == chosen[:, None, :]).sum(2)
        ranks = found.totals - np.float32(self.config.strength) * times.astype(np.float32)
        order = np.argsort(-ranks, axis=1, kind="stable")[:, : 2 * width]
        ordered = [np.take_along_axis(getattr(found, name), order, axis=1) for name in _FIELDS]
        best = Candidates(*ordered)
        return replace(best, parents=(best.parents - begin).clip(0, width - 1))


_FIELDS = ("totals", "parents", "tokens", "log_probabilities")

"""Beams that avoid each other: Vijayakumar et al. 2018, arXiv:1610.02424, section 4, with Hamming diversity.

Legend: B sentences, b of them still in the batch, K hypotheses of each in G groups of k, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nmt.data.hypothesis import Floats, Hypothesis, Ints
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.search import searches
from nmt.search.candidates import Candidates
from nmt.search.decoding import Decoding, Engine, Ids, Scores
from nmt.search.diverse_config import DiverseBeamConfig
from nmt.search.history import History
from nmt.search.model_decoding import ModelEngine, sort_keys, unpadded
from nmt.search.requests import Forced, Request, or_eos, refuse_inclusion
from nmt.search.rules import Rules
from nmt.search.stopping import Finished
from nmt.search.tensor_books import forbid

if TYPE_CHECKING:
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
        with torch.inference_mode(), np.errstate(invalid="ignore"):  # of slots that are empty
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
        config, groups = self.config, self.config.groups
        sentences, width = len(totals), config.beam_size // config.groups
        ranked = scores.ranked_there()  # [b * K, V]
        ranked = ranked.view(sentences, groups, width, -1)
        by_group = totals.reshape(sentences, groups, width)
        penalty = ranked.new_zeros(sentences, ranked.size(3))
        banned = [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS]
        found = []
        for group in range(groups):
            before = torch.from_numpy(by_group[:, group]).to(ranked.device)
            first = np.arange(sentences)[:, None] * config.beam_size + group * width  # rows of the group
            own = self._best(ranked[:, group] + before[:, :, None], penalty, banned, scores, first)
            given = or_eos(tokens, own.totals[:, 0] == -_INFINITY) if rules.any else tokens
            if given is not None:
                every = given.clip(min=0)[:, None].repeat(width, 1)
                logarithms = scores.log_probability(every, first + np.arange(width))
                after = by_group[:, group] + logarithms
                own = own.replace(given >= 0, Candidates.forced(after, given, logarithms))
            continuing = own.without_eos().first(width)
            costs = np.where(continuing.totals == -_INFINITY, 0.0, config.strength).astype(np.float32)
            penalty.scatter_add_(
                1, torch.from_numpy(continuing.tokens).to(penalty.device), torch.from_numpy(costs).to(penalty.device)
            )
            found.append(own)
        stacked = [np.stack([getattr(one, name) for one in found], 1).reshape(-1, 2 * width) for name in _FIELDS]
        return Candidates(*stacked)

    def _best(self, values: Tensor, penalty: Tensor, banned: list[int], scores: Scores, first: Ints) -> Candidates:
        """The 2k best of values [b, k, V], ranked after the penalty [b, V], which is no part of their totals. ``first``
        [b, 1]: the group's first row of each sentence."""
        width, vocabulary = values.size(1), values.size(2)
        forbid(values, banned)
        ranks = (values - penalty[:, None]).flatten(1)
        index = torch.arange(ranks.size(1), device=ranks.device)
        chosen = sort_keys(ranks, index).topk(2 * width).indices
        totals, places = values.flatten(1).gather(1, chosen).cpu().numpy(), chosen.cpu().numpy()
        parents, tokens = places // vocabulary, places % vocabulary
        return Candidates(totals, parents, tokens, scores.log_probability(tokens, first + parents))


_FIELDS = ("totals", "parents", "tokens", "log_probabilities")

"""Beam search and diverse beam search, over any engine (decoding.py). Bookkeeping is in NumPy.

Legend: B sentences, b of them still in the batch, K hypotheses of each in G groups of k, V vocabulary, S source positions.
Row s*K + j of a step belongs to slot j of sentence s; lane s*G + g is group g of sentence s.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from nmt.data.vocabulary import BOS, EOS, PAD, Flags, Floats, Hypothesis, Ints
from nmt.search import searches
from nmt.search.config import BeamConfig, DiverseBeamConfig, StopRule
from nmt.search.constraints import ForcedTokens, Rules, or_eos
from nmt.search.decoding import Candidates, Decoding, Engine, Scores, first_tokens
from nmt.search.history import Coverage, Finished, History
from nmt.search.inclusion import Inclusion
from nmt.search.requests import Sentences, refuse_inclusion

_INFINITY = float("inf")
_LARGEST_SHARE = 0.75  # of unsettled sentences in a batch; above it, settled ones stay


@searches.register("beam", BeamConfig)
class BeamSearch:
    """Beam search with back-pointers; finished sentences leave the batch early.

    Each step ranks the 2K best continuations. A hypothesis is finished if its eos is among the first K; the K best others
    continue. At the length limit a forced eos finishes a hypothesis; it is returned with ``Hypothesis.finished=False``.
    ``Finished.settled`` decides when the search of a sentence ends. The result of a sentence does not depend on the other
    sentences of the batch. Equal totals are ranked by slot, then token id. If the beam is wider than the vocabulary, slots
    stay empty until there are enough hypotheses, and a sentence may return fewer than ``nbest``.
    """

    groups = 1
    includes = True  # can include required phrases

    def __init__(self, config: BeamConfig, nbest: int = 1) -> None:
        config.require_slots(nbest)
        self.config = config
        self.nbest = nbest

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        if not self.includes:
            refuse_inclusion(batch.requests, "diverse_beam")
        lengths = batch.lengths
        decoding = engine.begin(batch.sources, self.config.beam_size, batch.lists)
        forced = ForcedTokens(batch, self.config, engine.longest_targets(lengths))
        with np.errstate(invalid="ignore"):  # totals of empty slots are -inf
            finished, history = self._search(decoding, batch, forced)
        endings = [finished.best_endings(lane) for lane in range(len(lengths) * self.groups)]
        every, lengths = list(itertools.chain(*endings)), lengths.repeat(self.groups)
        hypotheses = iter(history.hypotheses(every, lengths, ranked_by_model=self.config.repetition_penalty == 1.0))
        of_lanes = [list(itertools.islice(hypotheses, len(of_lane))) for of_lane in endings]
        return of_lanes if self.groups == 1 else self._merged(of_lanes)

    def _merged(self, of_lanes: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Rank the hypotheses of all groups of a sentence together; equal translations count once."""
        merged = []
        for first in range(0, len(of_lanes), self.groups):
            distinct: dict[bytes, Hypothesis] = {}
            of_sentence = itertools.chain(*of_lanes[first : first + self.groups])
            for hypothesis in sorted(of_sentence, key=lambda hypothesis: -hypothesis.score):
                distinct.setdefault(hypothesis.tokens.tobytes(), hypothesis)
            merged.append(list(distinct.values())[: self.nbest])
        return merged

    def _search(self, decoding: Decoding, batch: Sentences, forced: ForcedTokens) -> tuple[Finished, History]:
        config, groups, count, beam = self.config, np.arange(self.groups), len(batch.sources), self.config.beam_size
        width = beam // self.groups  # k
        first_slots = (groups * width).repeat(width)  # [K] of the group of each slot
        shrinks = (~batch.include & (config.stop is StopRule.shrink)).repeat(self.groups)  # [B * G]
        limits = forced.limits.repeat(self.groups)
        finished = Finished(config, width, min(self.nbest, width), limits, shrinks, batch.started)
        history = History(count * self.groups)
        coverage = Coverage(config.coverage_penalty, batch.lengths, beam) if config.coverage_penalty else None
        rules = Rules(config, batch.requests, count, beam)
        inclusion = Inclusion(batch.requests, beam, finished)
        sentences, tokens = np.arange(count), first_tokens(decoding, batch, beam)
        totals = np.full((count, beam), -_INFINITY, dtype=np.float32)
        totals[:, ::width] = 0.0  # all slots of a group would hold the same empty hypothesis, so only the first does
        for length in itertools.count(1):
            scores = decoding.step(tokens, batch.attention or coverage is not None)
            if rules.any:
                scores.change(rules.changes())
            lanes = (sentences[:, None] * self.groups + groups).ravel()  # [b * G]
            placeless = finished.without_place(lanes) if shrinks.any() else None
            required = forced.tokens(sentences, length)
            candidates = self._candidates(scores, totals, required, length, rules, inclusion, placeless)
            if coverage is not None:
                coverage.add(scores.attention)
            ends = (candidates.tokens == EOS) & (candidates.totals != -_INFINITY)  # [b * G, 2k]
            ends[:, width:] = False
            if ends.any():
                finished.add(candidates, ends, lanes, length, coverage)
                candidates = candidates.emptied(ends & shrinks[lanes, None]).without_eos()
            chosen = candidates.first(width)
            history.append(lanes, chosen, scores.attention if batch.attention else None)
            settled = np.all(finished.settled(lanes, chosen.totals.max(1), length).reshape(-1, self.groups), axis=1)
            staying = _remaining(settled, freely=decoding.leave_freely)
            if len(staying) == 0:
                break
            if len(staying) == len(settled):
                chosen = chosen.emptied(settled.repeat(self.groups)[:, None])
            parents = chosen.parents.reshape(-1, beam) + first_slots  # [b, K]
            rows = (np.arange(0, totals.size, beam)[:, None] + parents)[staying].ravel()
            totals = chosen.totals.reshape(-1, beam)[staying]
            tokens = chosen.tokens.reshape(-1, beam)[staying].ravel()
            if coverage is not None:
                coverage.follow(rows)
            if rules.any:
                rules.follow(tokens, rows, staying)
            if inclusion.any:
                inclusion.follow(chosen, staying)
            decoding.follow(parents, staying)
            sentences = sentences[staying]
        return finished, history

    def _candidates(
        self,
        scores: Scores,
        totals: Floats,
        tokens: Ints | None,
        length: int,
        rules: Rules,
        inclusion: Inclusion,
        placeless: Flags | None,
    ) -> Candidates:
        """Return the 2k best continuations of each lane, group after group. ``tokens`` [b]: forced tokens, -1 for none.
        ``placeless`` [b * G, 2k]: candidates without a slot."""
        banned, of_groups = [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS], list[Candidates]()
        sentences, beam = totals.shape
        for first in range(0, beam, beam // self.groups):
            slots = np.arange(first, first + beam // self.groups)
            own, forced = self._best(scores, totals, slots, of_groups, banned), tokens
            if inclusion.any:
                own = inclusion.choose(own, scores, totals, eos_allowed=EOS not in banned)
            if rules.any or inclusion.any:
                forced = or_eos(forced, own.totals[:, 0] == -_INFINITY)
            if forced is not None:
                rows = np.arange(sentences)[:, None] * beam + slots  # [b, k]
                logarithms = scores.log_probability(forced.clip(min=0)[:, None].repeat(len(slots), 1), rows)
                after = totals[:, slots] + logarithms
                if inclusion.any:
                    after = np.where((forced == EOS)[:, None], inclusion.endings(after), after)
                own = own.replace(forced >= 0, Candidates.forced(after, forced, logarithms))
            if placeless is not None:
                own = own.emptied(placeless[len(of_groups) :: self.groups])
            of_groups.append(own)
        if len(of_groups) == 1:
            return of_groups[0]
        return Candidates(*(np.stack(parts, 1).reshape(-1, 2 * beam // self.groups) for parts in zip(*of_groups)))

    def _best(
        self, scores: Scores, totals: Floats, slots: Ints, earlier: Sequence[Candidates], banned: Sequence[int]
    ) -> Candidates:
        """Return the 2k best continuations [b, 2k] of the hypotheses in the ``slots`` [k] of a group."""
        return scores.best(totals, 2 * len(slots), banned)


@searches.register("diverse_beam", DiverseBeamConfig)
class DiverseBeamSearch(BeamSearch):
    """Vijayakumar et al. 2018, arXiv:1610.02424, section 4, with Hamming diversity.

    At each position, the groups choose one after another, each by a separate beam search over k slots. The penalty affects
    the choice only, not the totals. Each group ends by the stop rule for k hypotheses.
    """

    includes = False

    def __init__(self, config: DiverseBeamConfig, nbest: int = 1) -> None:
        super().__init__(config, nbest)
        self.groups = config.groups
        self._strength = np.float32(config.strength)

    def _best(
        self, scores: Scores, totals: Floats, slots: Ints, earlier: Sequence[Candidates], banned: Sequence[int]
    ) -> Candidates:
        """Return the best continuations after a penalty for the tokens that ``earlier`` groups chose. The penalty lowers at
        most that many continuations of each of the k hypotheses, so enough are ranked for the best to be among them."""
        continuing = [group.without_eos().first(len(slots)) for group in earlier]
        ended = [(group.totals == -_INFINITY) | (group.tokens == EOS) for group in continuing]
        chosen = [np.where(over, -1, group.tokens) for group, over in zip(continuing, ended)]  # [b, k] each
        times, own_totals = np.zeros((len(totals), 1), dtype=np.float32), np.full_like(totals, -_INFINITY)
        own_totals[:, slots] = totals[:, slots]
        candidates = scores.best(own_totals, len(slots) * (2 + sum(tokens.shape[1] for tokens in chosen)), banned)
        for tokens in chosen:
            times = times + (candidates.tokens[:, :, None] == tokens[:, None, :]).sum(2, dtype=np.float32)
        order = np.argsort(-(candidates.totals - self._strength * times), axis=1, kind="stable")[:, : 2 * len(slots)]
        best = candidates.ordered(order)
        return best._replace(parents=(best.parents - slots[0]).clip(0, len(slots) - 1))


def _remaining(settled: Flags, *, freely: bool) -> Ints:
    """Return the sentences that stay in the batch: the unsettled ones. If removal moves all others, few settled ones stay
    too."""
    unsettled = np.flatnonzero(~settled)
    return unsettled if freely or len(unsettled) <= _LARGEST_SHARE * len(settled) else np.arange(len(settled))

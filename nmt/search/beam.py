"""Beam search over any ``Decodable``.

It keeps books in NumPy; what computes is an engine (decoding.py).

Legend: B sentences, b of them still in the batch, K beam, V vocabulary, S source positions. Row s*K + k of a step
belongs to slot k of sentence s.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nmt.data.hypothesis import Floats, Hypothesis, Ids, Ints
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.search import searches
from nmt.search.beam_config import BeamConfig
from nmt.search.candidates import Candidates, Flags
from nmt.search.coverage import Coverage
from nmt.search.decoding import Decoding, Engine, Scores
from nmt.search.history import History
from nmt.search.inclusion import Inclusion
from nmt.search.requests import Forced, Request, or_eos
from nmt.search.rules import Rules
from nmt.search.stopping import Finished

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.interface import Decodable

_INFINITY = float("inf")
_ENOUGH = 0.75  # of the sentences of a batch: as long as more are unsettled, the others stay


@searches.register("beam", BeamConfig)
class BeamSearch:
    """Beam search with a key/value cache, back-pointers and early departure of finished sentences.

    At each step the 2K best continuations are looked at; a hypothesis is finished when its eos stands among the first
    K, the K best others go on. A hypothesis that reaches the length limit gets its eos by force and is marked
    ``finished=False``. What happens to a sentence depends on that sentence alone: batch mates never matter, and equal
    totals are ranked by slot, then token id. A beam wider than the vocabulary is allowed: slots stay empty until there
    are enough hypotheses, and a sentence may then return fewer than ``nbest``.
    """

    def __init__(self, config: BeamConfig, nbest: int = 1) -> None:
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
        """The same with an engine. ``sources``: ids ending in eos. With ``lists`` of the target ids that each sentence may
        need, tokens are places in the own list, in ``requests`` too."""
        lengths = np.array([len(source) for source in sources])
        decoding = engine.begin(sources, self.config.beam_size, lists)
        forced = Forced(requests, lengths, self.config, engine.longest_targets(lengths))
        with np.errstate(invalid="ignore"):  # of slots that are empty
            finished, history = self._search(decoding, lengths, forced, attention, requests)
        endings = [finished.best(sentence) for sentence in range(len(sources))]
        ranked_by_model = self.config.repetition_penalty == 1.0
        hypotheses = iter(history.hypotheses(list(itertools.chain(*endings)), lengths, ranked_by_model=ranked_by_model))
        return [list(itertools.islice(hypotheses, len(of_sentence))) for of_sentence in endings]

    def _search(
        self,
        decoding: Decoding,
        lengths: Ints,
        forced: Forced,
        attention: bool,
        requests: Sequence[Request] | None,
    ) -> tuple[Finished, History]:
        config, width, batch = self.config, self.config.beam_size, len(lengths)
        finished, history = Finished(config.ranking(width, self.nbest), forced.limits), History(batch, width)
        coverage = Coverage(config.coverage_penalty, lengths) if config.coverage_penalty else None
        rules, inclusion = Rules(config, requests, batch, width), Inclusion(requests, width)
        sentences, totals, tokens = np.arange(batch), first_totals(batch, width), np.full(batch * width, BOS)
        for length in itertools.count(1):
            scores = decoding.step(tokens, attention or coverage is not None)
            if rules.any:
                scores.change(rules.changes())
            if coverage is not None:
                coverage.add(scores.attention)
            found = self._candidates(scores, totals, inclusion, eos_allowed=length > rules.min_len)
            given = forced.tokens(sentences, length)
            if rules.any or inclusion.any:
                given = or_eos(given, found.totals[:, 0] == -_INFINITY)
            if given is not None:
                found = found.replace(given >= 0, _forced(given, scores, totals, inclusion, finished.found(sentences)))
            ends = (found.tokens == EOS) & (found.totals != -_INFINITY)  # [b, 2K]
            ends[:, width:] = False
            if ends.any():
                finished.add(found, ends, sentences, length, width, coverage)
                found = found.without_eos()
            chosen = found.first(width)
            weights = scores.attention if attention else None
            history.append(sentences, chosen.parents, chosen.tokens, chosen.log_probabilities, weights)
            settled = finished.settled(sentences, chosen.totals.max(1))
            staying = going_on(settled, freely=decoding.leave_freely)
            if len(staying) == 0:
                break
            if len(staying) == len(settled):
                chosen = chosen.emptied(settled)
            rows = (np.arange(0, totals.size, width)[:, None] + chosen.parents)[staying].ravel()
            if coverage is not None:
                coverage.follow(rows)
            if rules.any:
                rules.follow(chosen.tokens[staying].ravel(), rows, staying)
            if inclusion.any:
                inclusion.follow(chosen, staying)
            decoding.follow(chosen.parents, staying)
            sentences, totals, tokens = sentences[staying], chosen.totals[staying], chosen.tokens[staying].ravel()
        return finished, history

    def _candidates(self, scores: Scores, totals: Floats, inclusion: Inclusion, *, eos_allowed: bool) -> Candidates:
        """The 2K best continuations of each sentence."""
        found = scores.best(totals, 2 * self.config.beam_size, [PAD, BOS] if eos_allowed else [PAD, BOS, EOS])
        return inclusion.choose(found, scores, totals, eos_allowed=eos_allowed) if inclusion.any else found


def first_totals(batch: int, width: int) -> Floats:
    """[B, K] log-probabilities of hypotheses without a token: all slots would hold the same one, so only the first does."""
    totals = np.full((batch, width), -_INFINITY, dtype=np.float32)
    totals[:, 0] = 0.0
    return totals


def _forced(tokens: Ints, scores: Scores, totals: Floats, inclusion: Inclusion, finished: Sequence[bool]) -> Candidates:
    """Every hypothesis continued by its sentence's token [b], where that is one."""
    every = tokens.clip(min=0).repeat(totals.shape[1])  # [b * K]
    logarithms = scores.log_probability(every, np.arange(len(every))).reshape(totals.shape)
    after = totals + logarithms
    if inclusion.any:
        after = np.where((tokens == EOS)[:, None], inclusion.endings(after, finished), after)
    return Candidates.forced(after, tokens, logarithms)


def going_on(settled: Flags, *, freely: bool) -> Ints:
    """Which sentences stay in the batch: where to take some out moves all others, all as long as few are settled."""
    unsettled = np.flatnonzero(~settled)
    return unsettled if freely or len(unsettled) <= _ENOUGH * len(settled) else np.arange(len(settled))

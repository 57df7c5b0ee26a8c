"""Beam search over any ``Decodable``.

Legend: B sentences, b of them still in the batch, K beam, V vocabulary, S source positions. Row s*K + k of a step
belongs to slot k of sentence s.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS
from nmt.interface import Decodable, DecoderState, Hypothesis, Memory
from nmt.search import searches
from nmt.search.beam_config import BeamConfig
from nmt.search.candidates import Candidates, StepScores
from nmt.search.coverage import Coverage
from nmt.search.history import History
from nmt.search.inclusion import Inclusion
from nmt.search.requests import Forced, Request
from nmt.search.rules import Rules
from nmt.search.stopping import Finished

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
        with torch.inference_mode():
            finished, history = self._search(model, source, source_lengths, attention, requests)
        endings = [finished.best(sentence) for sentence in range(source.size(0))]
        ranked_by_model = self.config.repetition_penalty == 1.0
        hypotheses = iter(
            history.hypotheses(list(itertools.chain(*endings)), source_lengths, ranked_by_model=ranked_by_model)
        )
        return [list(itertools.islice(hypotheses, len(of_sentence))) for of_sentence in endings]

    def _search(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        attention: bool,
        requests: Sequence[Request] | None,
    ) -> tuple[Finished, History]:
        config, width = self.config, self.config.beam_size
        forced = Forced(requests, model, source_lengths, config)
        finished = Finished(config.ranking(width, self.nbest), forced.limits)
        history = History(source.size(0), width)
        beam = start_beam(model, source, source_lengths, width)
        coverage = Coverage(config.coverage_penalty, source_lengths) if config.coverage_penalty else None
        rules, inclusion = Rules(config, requests, source.size(0), width, source.device), Inclusion(requests, width)
        for length in itertools.count(1):
            output = model.step(beam.tokens, beam.memory, beam.state, attention or coverage is not None)
            scores = StepScores(output, rules)
            if coverage is not None:
                coverage.add(output.attention)
            found = self._candidates(scores, beam, inclusion, eos_allowed=length > rules.min_len)
            tokens = forced.tokens(beam.sentences, length)
            if rules.any or inclusion.any:
                tokens = or_eos(tokens, found.totals[:, 0] == -_INFINITY)
            if tokens is not None:
                found = found.replace(tokens >= 0, _forced(tokens, scores, beam, inclusion, finished))
            ends = (found.tokens == EOS) & (found.totals != -_INFINITY)  # [b, 2K]
            ends[:, width:] = False
            if ends.any():
                finished.add(found, ends, scores, beam.sentences, length, coverage)
                found = found.without_eos()
            chosen = found.first(width)
            rows = beam.rows_of(chosen.parents)
            token_scores = scores.log_probability(chosen.tokens, rows)
            weights = output.attention if attention else None
            history.append(beam.sentences, chosen.parents, chosen.tokens, token_scores, weights)
            settled = finished.settled(beam.sentences, chosen.totals.amax(1))
            staying = going_on(settled)
            if len(staying) == 0:
                break
            if len(staying) == len(settled):
                chosen = chosen.emptied(settled)
            if coverage is not None:
                coverage.follow(rows[staying].flatten())
            if rules.any:
                rules.follow(chosen.tokens[staying].flatten(), rows[staying].flatten(), staying)
            if inclusion.any:
                inclusion.follow(chosen, staying)
            beam = beam.advance(output.state, chosen, staying)
        return finished, history

    def _candidates(self, scores: StepScores, beam: Beam, inclusion: Inclusion, *, eos_allowed: bool) -> Candidates:
        """The 2K best continuations of each sentence."""
        found = scores.best(beam.totals, 2 * self.config.beam_size, eos_allowed=eos_allowed)
        return inclusion.choose(found, scores, beam.totals, eos_allowed=eos_allowed) if inclusion.any else found


def _forced(tokens: Tensor, scores: StepScores, beam: Beam, inclusion: Inclusion, finished: Finished) -> Candidates:
    """Every hypothesis continued by its sentence's token [b], where that is one."""
    every = tokens.clamp(min=0).repeat_interleave(beam.totals.size(1))  # [b * K]
    totals = beam.totals + scores.log_probability(every).view_as(beam.totals)
    if inclusion.any:
        ended = inclusion.endings(totals, finished.found(beam.sentences))
        totals = torch.where((tokens == EOS)[:, None], ended, totals)
    return Candidates.forced(totals, tokens)


def or_eos(tokens: Tensor | None, stuck: Tensor) -> Tensor | None:
    """Forced tokens [b], and eos where a sentence is ``stuck`` [b] otherwise."""
    if tokens is None:
        return torch.where(stuck, EOS, -1) if stuck.any() else None
    return torch.where(stuck & (tokens < 0), EOS, tokens)


def going_on(settled: Tensor) -> Tensor:
    """Which sentences stay in the batch: all as long as few are settled, since to take them out moves all others."""
    unsettled = (~settled).nonzero().squeeze(1)
    return unsettled if len(unsettled) <= _ENOUGH * len(settled) else torch.arange(len(settled), device=settled.device)


@dataclass
class Beam:
    """The unfinished hypotheses of the sentences still in the batch, before a step."""

    sentences: Tensor  # [b] which sentence of the batch each row is
    totals: Tensor  # [b, K] log-probabilities; -inf: an empty slot
    tokens: Tensor  # [b * K] the last token of each
    memory: Memory  # b rows
    state: DecoderState  # b * K rows

    def rows_of(self, parents: Tensor) -> Tensor:
        """[b, K] slots -> [b, K] rows of the step."""
        return torch.arange(0, parents.numel(), parents.size(1), device=parents.device)[:, None] + parents

    def advance(self, state: DecoderState, chosen: Candidates, staying: Tensor) -> Beam:
        """The beam after ``chosen`` [b, K], of the sentences ``staying`` (positions in b) only."""
        rows = self.rows_of(chosen.parents)
        if len(staying) == len(self.sentences):
            if rows.size(1) > 1:
                state = state.rows(rows.flatten())
            return Beam(self.sentences, chosen.totals, chosen.tokens.flatten(), self.memory, state)
        return Beam(
            sentences=self.sentences[staying],
            totals=chosen.totals[staying],
            tokens=chosen.tokens[staying].flatten(),
            memory=self.memory.rows(staying),
            state=state.rows(rows[staying].flatten()),
        )


def start_beam(model: Decodable, source: Tensor, source_lengths: Tensor, beam_size: int) -> Beam:
    batch, device = source.size(0), source.device
    memory, state = model.start(model.encode(source, source_lengths), beam_size)
    totals = torch.full((batch, beam_size), -_INFINITY, device=device)
    totals[:, 0] = 0.0  # all slots would hold the same empty hypothesis: only the first is one
    tokens = torch.full((batch * beam_size,), BOS, device=device)
    return Beam(torch.arange(batch, device=device), totals, tokens, memory, state)

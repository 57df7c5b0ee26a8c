"""Beams that avoid each other: Vijayakumar et al. 2018, arXiv:1610.02424, section 4, with Hamming diversity.

Legend: B sentences, b of them still in the batch, K hypotheses of each in G groups of k, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.interface import Decodable, Hypothesis
from nmt.search import searches
from nmt.search.beam import Beam, or_eos, start_beam
from nmt.search.candidates import Candidates, StepScores, forbid, sort_keys
from nmt.search.diverse_config import DiverseBeamConfig
from nmt.search.history import History
from nmt.search.requests import Forced, Request, refuse_inclusion
from nmt.search.rules import Rules
from nmt.search.stopping import Finished

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
        refuse_inclusion(requests, "diverse_beam")
        groups = self.config.groups
        with torch.inference_mode():
            finished, history = self._search(model, source, source_lengths, attention, requests)
        endings = [finished.best(lane) for lane in range(source.size(0) * groups)]
        hypotheses = history.hypotheses(
            list(itertools.chain(*endings)),
            source_lengths.repeat_interleave(groups),
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
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        attention: bool,
        requests: Sequence[Request] | None,
    ) -> tuple[Finished, History]:
        """Over lanes: lane s * G + g is group g of sentence s."""
        config, groups, width = self.config, self.config.groups, self.config.beam_size // self.config.groups
        forced = Forced(requests, model, source_lengths, config)
        ranking = config.ranking(width, min(self.nbest, width))
        finished = Finished(ranking, forced.limits.repeat_interleave(groups))
        history = History(source.size(0) * groups, width)
        beam = start_beam(model, source, source_lengths, config.beam_size)
        beam.totals[:, ::width] = 0.0  # the empty hypothesis of each group
        rules = Rules(config, requests, source.size(0), config.beam_size, source.device)
        of_group = torch.arange(groups, device=source.device)
        for length in itertools.count(1):
            output = model.step(beam.tokens, beam.memory, beam.state, attention)
            scores = StepScores(output, rules)
            lanes = (beam.sentences[:, None] * groups + of_group).flatten()  # [b * G]
            found = self._candidates(scores, beam, forced, length, rules)
            ends = (found.tokens == EOS) & (found.totals != -_INFINITY)  # [b * G, 2k]
            ends[:, width:] = False
            if ends.any():
                finished.add(found, ends, scores, lanes, length, None)
                found = found.without_eos()
            chosen = found.first(width)
            rows = torch.arange(0, beam.tokens.numel(), width, device=source.device)[:, None] + chosen.parents
            token_scores = scores.log_probability(chosen.tokens, rows)
            weights = output.attention if attention else None
            history.append(lanes, chosen.parents, chosen.tokens, token_scores, weights)
            settled = finished.settled(lanes, chosen.totals.amax(1)).view(-1, groups).all(1)
            staying = (~settled).nonzero().squeeze(1)
            if len(staying) == 0:
                break
            together = Candidates(  # [b, K]
                chosen.totals.reshape(len(settled), -1),
                (chosen.parents.reshape(-1, groups, width) + width * of_group[:, None]).flatten(1),
                chosen.tokens.reshape(len(settled), -1),
            )
            rows = rows.view(len(settled), -1)[staying].flatten()
            rules.follow(together.tokens[staying].flatten(), rows, staying)
            beam = beam.advance(output.state, together, staying)
        return finished, history

    def _candidates(self, scores: StepScores, beam: Beam, forced: Forced, length: int, rules: Rules) -> Candidates:
        """The 2k best continuations of each lane, group after group."""
        config, groups = self.config, self.config.groups
        sentences, vocabulary = len(beam.sentences), scores.scores.size(1)
        totals = beam.totals.view(sentences, groups, -1)
        base = totals - scores.normaliser.view_as(totals)
        penalty = scores.scores.new_zeros(sentences, vocabulary)
        banned = [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS]
        tokens = forced.tokens(beam.sentences, length)
        found = []
        for group in range(groups):
            values = scores.scores.view(sentences, groups, -1, vocabulary)[:, group] + base[:, group, :, None]
            own = self._best(values, penalty, banned)
            given = or_eos(tokens, own.totals[:, 0] == -_INFINITY) if rules.any else tokens
            if given is not None:
                every = given.clamp(min=0).view(-1, 1, 1).expand_as(totals[:, :1])
                after = totals[:, group] + self._log_probabilities(scores, every, group)
                own = own.replace(given >= 0, Candidates.forced(after, given))
            continuing = own.without_eos().first(totals.size(2))
            costs = torch.where(continuing.totals == -_INFINITY, 0.0, config.strength)
            penalty.scatter_add_(1, continuing.tokens, costs.to(penalty.dtype))
            found.append(own)
        stacked = [torch.stack([getattr(one, name) for one in found], 1).flatten(0, 1) for name in _FIELDS]
        return Candidates(*stacked)

    def _log_probabilities(self, scores: StepScores, tokens: Tensor, group: int) -> Tensor:
        """Of tokens [b, 1, k] in the rows of a group: [b, k]"""
        sentences, _, width = tokens.shape
        first = torch.arange(sentences, device=tokens.device)[:, None] * self.config.beam_size + group * width
        rows = first + torch.arange(width, device=tokens.device)
        return scores.log_probability(tokens[:, 0], rows)

    def _best(self, values: Tensor, penalty: Tensor, banned: list[int]) -> Candidates:
        """The 2k best of values [b, k, V], ranked after the penalty [b, V], which is no part of their totals."""
        width, vocabulary = values.size(1), values.size(2)
        forbid(values, banned)
        ranks = (values - penalty[:, None]).flatten(1)
        index = torch.arange(ranks.size(1), device=ranks.device)
        chosen = sort_keys(ranks, index).topk(2 * width).indices
        return Candidates(values.flatten(1).gather(1, chosen), chosen // vocabulary, chosen % vocabulary)


_FIELDS = ("totals", "parents", "tokens")

"""Several engines as one: the mean of their probabilities.

Legend: N hypotheses in the batch, V vocabulary, S source positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocabulary import Ids, Ints
from nmt.engines.model_engine import scores_of, usual_tokens
from nmt.errors import UsageError
from nmt.search.decoding import Decoding, Engine, Scores


class EnsembleEngine(Engine):
    """Engines on one device whose models share both vocabularies; their architectures may differ.

    Attention is the mean of the members that have attention, weighted as their probabilities are.
    """

    def __init__(self, members: Sequence[Engine], weights: Sequence[float] = ()) -> None:
        """``weights``: a positive number for each member, of which only the ratios matter; empty: equal weights."""
        assert members, "an ensemble needs a model"
        self.members = members
        self._shares = _shares(weights or [1.0] * len(members), len(members))
        self.device = members[0].device
        self.usual_tokens = usual_tokens(self.device)
        self.longest_source = min((m.longest_source for m in members if m.longest_source is not None), default=None)
        self.interleaves = all(member.interleaves for member in members)

    def forget(self) -> None:
        for member in self.members:
            member.forget()

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> EnsembleDecoding:
        return EnsembleDecoding([member.begin(sources, beam, lists) for member in self.members], self._shares)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limits = [member.longest_targets(source_lengths) for member in self.members]
        known = [limit for limit in limits if limit is not None]
        return np.min(known, axis=0) if known else None


class EnsembleDecoding:
    """A batch that every member decodes."""

    def __init__(self, members: Sequence[Decoding], shares: Sequence[float]) -> None:
        self._members, self._shares = members, shares
        self.leave_freely = all(member.leave_freely for member in members)

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        scores = [member.step(tokens, attention) for member in self._members]
        with torch.inference_mode():
            weighted = [step.log_probabilities() + math.log(share) for step, share in zip(scores, self._shares)]
            mean = torch.stack(weighted).logsumexp(0)
            return scores_of(mean, self._attention(scores, mean.device), normalized=True)

    def follow(self, parents: Ints, staying: Ints) -> None:
        for member in self._members:
            member.follow(parents, staying)

    def _attention(self, scores: Sequence[Scores], device: torch.device) -> Tensor | None:
        """[N, S]"""
        known = [(share, step.attention) for share, step in zip(self._shares, scores) if step.attention is not None]
        total = sum(share for share, _ in known)
        weighted: list[Tensor] = [torch.from_numpy(attention) * (share / total) for share, attention in known]
        return torch.stack(weighted).sum(0).to(device) if weighted else None


def _shares(weights: Sequence[float], count: int) -> list[float]:
    shares = [weight / sum(weights) for weight in weights] if 0.0 < sum(weights) < math.inf else []
    if len(weights) != count or not shares or min(weights) <= 0.0 or min(shares) == 0.0:
        raise UsageError(
            f"--ensemble-weights {' '.join(f'{weight:g}' for weight in weights)}: give a positive number for each of "
            f"the {count} models, in order"
        )
    return shares

"""What a search is asked for, for searches that keep their books in torch, where the model computes.

Legend: B sentences, b of them still in the batch, N hypotheses, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.interface import Decodable
from nmt.search.limits_config import LengthConfig
from nmt.search.requests import Forced, Requests
from nmt.search.rules import Changes, Rules

_INFINITY = float("inf")


class ForcedTokens:
    """The tokens that leave a search no choice (``Forced``), as tensors."""

    def __init__(self, requests: Requests, model: Decodable, source_lengths: Tensor, config: LengthConfig) -> None:
        of_model, device = model.max_target_lengths(source_lengths), source_lengths.device
        limits = None if of_model is None else of_model.cpu().numpy()
        self._forced = Forced(requests, source_lengths.cpu().numpy(), config, limits)
        self.limits = torch.from_numpy(self._forced.limits).to(device)  # [B]
        self._prefixes = torch.from_numpy(self._forced.prefixes).to(device)

    def tokens(self, sentences: Tensor, length: int) -> Tensor | None:
        """[b] the token that stands at position ``length`` in these sentences, -1 where the search chooses. None: it does
        everywhere."""
        if self._forced.chooses_at(length):
            return None
        at_limit = self.limits[sentences] == length
        if length <= self._forced.longest:
            return torch.where(at_limit, EOS, self._prefixes[sentences, length - 1])
        return torch.where(at_limit, EOS, -1) if at_limit.any() else None


def changed(scores: Tensor, normaliser: Tensor | float, changes: Changes) -> Tensor:
    """A copy of scores [N, V], which are log-probabilities once ``normaliser`` [N] is taken away, as rules want it."""
    scores = scores.clone()
    if changes.weaker is not None:
        rows, tokens = (torch.from_numpy(side).to(scores.device) for side in changes.weaker)
        shift = normaliser[rows] if isinstance(normaliser, Tensor) else normaliser
        scores[rows, tokens] = changes.factor * (scores[rows, tokens] - shift) + shift
    rows, tokens = (torch.from_numpy(side).to(scores.device) for side in changes.forbidden)
    scores[rows, tokens] = -_INFINITY
    return scores


def follow(rules: Rules, tokens: Tensor, rows: Tensor, staying: Tensor) -> None:
    """``Rules.follow`` where there are rules: to look into tensors of a GPU is to wait for it."""
    if rules.any:
        rules.follow(*(part.cpu().numpy().astype(np.int64) for part in (tokens, rows, staying)))


def forbid(values: Tensor, tokens: list[int]) -> None:
    """Minus infinity for these tokens of [..., V]; as an index a list is copied to a GPU, which is waited for."""
    for token in tokens:
        values[..., token] = -_INFINITY

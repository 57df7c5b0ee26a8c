"""What is asked of the translation of one sentence, beside that it be good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS
from nmt.errors import UsageError
from nmt.interface import Decodable
from nmt.search.limits import length_limits
from nmt.search.limits_config import LengthConfig

Phrase = tuple[int, ...]  # target ids


@dataclass(frozen=True)
class Request:
    """For one sentence; the usual one asks for nothing."""

    prefix: Phrase = ()  # the translation begins with it
    include: tuple[Phrase, ...] = ()  # and contains each of these, as often as it stands here
    exclude: tuple[Phrase, ...] = ()  # and none of these
    target: Phrase = ()  # it is this one, and only to be scored
    min_length: int | None = None  # pieces, in place of the search's own rule
    max_length: int | None = None


def refuse_inclusion(requests: Sequence[Request] | None, search: str) -> None:
    """For searches that cannot make a translation contain a phrase."""
    if any(request.include for request in requests or ()):
        raise UsageError(f"--search {search} cannot make a translation contain a phrase; use --search beam")


class Forced:
    """The tokens that leave a search no choice: of the sentence's prefix, and eos where the length limit is reached."""

    def __init__(
        self,
        requests: Sequence[Request] | None,
        model: Decodable,
        source_lengths: Tensor,
        config: LengthConfig,
    ) -> None:
        asked = requests or ()
        prefixes = [request.prefix for request in asked]
        longest = max(map(len, prefixes), default=0)
        device = source_lengths.device
        self._prefixes = torch.tensor(
            [[*p, *[-1] * (longest - len(p))] for p in prefixes], device=device
        )  # [B, longest]
        self._longest = longest
        most = [0 if one.max_length is None else one.max_length + 1 for one in asked]
        least = [max(len(one.prefix), one.min_length or 0) + 1 for one in asked]
        bounds = torch.tensor([most, least], device=device) if asked else (None, None)
        self.limits = length_limits(model, source_lengths, config, *bounds)  # [B]
        self._lowest = int(self.limits.min())

    def tokens(self, sentences: Tensor, length: int) -> Tensor | None:
        """[b] the token that stands at position ``length`` (from 1) in these sentences, -1 where the search chooses.
        None: it does everywhere."""
        if self._longest < length < self._lowest:
            return None
        at_limit = self.limits[sentences] == length
        if length <= self._longest:
            return torch.where(at_limit, EOS, self._prefixes[sentences, length - 1])
        return torch.where(at_limit, EOS, -1) if at_limit.any() else None

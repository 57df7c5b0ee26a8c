"""What is asked of the translation of one sentence, beside that it be good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.hypothesis import Ints
from nmt.data.vocabulary import EOS
from nmt.errors import UsageError
from nmt.search.candidates import Flags
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


Requests = Sequence[Request] | None  # one a sentence, or nothing is asked for


def refuse_inclusion(requests: Sequence[Request] | None, search: str) -> None:
    """For searches that cannot make a translation contain a phrase."""
    if any(request.include for request in requests or ()):
        raise UsageError(f"--search {search} cannot make a translation contain a phrase; use --search beam")


class Forced:
    """The tokens that leave a search no choice: of the sentence's prefix, and eos where the length limit is reached."""

    def __init__(
        self, requests: Sequence[Request] | None, source_lengths: Ints, config: LengthConfig, of_model: Ints | None
    ) -> None:
        """``of_model`` [B]: the model's own limits, if it has some."""
        asked = requests or ()
        prefixes = [request.prefix for request in asked]
        self.longest = max(map(len, prefixes), default=0)  # prefix
        rows = [[*prefix, *[-1] * (self.longest - len(prefix))] for prefix in prefixes]
        self.prefixes = np.array(rows, dtype=np.int64).reshape(len(rows), self.longest)  # [B, longest]
        own = least = None
        if asked:
            own = np.array([0 if one.max_length is None else one.max_length + 1 for one in asked])
            least = np.array([max(len(one.prefix), one.min_length or 0) + 1 for one in asked])
        self.limits = length_limits(source_lengths, config, of_model, own, least)  # [B]
        self.lowest = int(self.limits.min())

    def chooses_at(self, length: int) -> bool:
        """Whether the search chooses at position ``length`` (from 1) in every sentence."""
        return self.longest < length < self.lowest

    def tokens(self, sentences: Ints, length: int) -> Ints | None:
        """[b] the token that stands at position ``length`` in these sentences, -1 where the search chooses. None: it does
        everywhere."""
        if self.chooses_at(length):
            return None
        at_limit = self.limits[sentences] == length
        if length <= self.longest:
            return np.where(at_limit, EOS, self.prefixes[sentences, length - 1])
        return np.where(at_limit, EOS, -1) if at_limit.any() else None


def or_eos(tokens: Ints | None, stuck: Flags) -> Ints | None:
    """Forced tokens [b], and eos where a sentence is ``stuck`` [b] otherwise."""
    if tokens is None:
        return np.where(stuck, EOS, -1) if stuck.any() else None
    return np.where(stuck & (tokens < 0), EOS, tokens)

"""A batch to translate, and the requests of its sentences: phrases and lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.data.vocabulary import Flags, Hypothesis, Ids, Ints
from nmt.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

Phrase = tuple[int, ...]  # target ids


@dataclass(frozen=True)
class Request:
    """Constraints on the translation of one sentence; none by default."""

    prefix: Phrase = ()  # the translation begins with it
    include: tuple[Phrase, ...] = ()  # and contains each of these, as often as it stands here
    exclude: tuple[Phrase, ...] = ()  # and none of these
    target: Phrase = ()  # the translation itself, if it is only to be scored
    min_length: int | None = None  # pieces; None: as the options of the search say
    max_length: int | None = None
    start: Phrase = ()  # read before the translation, which does not contain it; as long in all sentences of a batch


@dataclass(frozen=True)
class Sentences:
    """A batch to translate, with the requests of its sentences."""

    sources: Sequence[Ids]  # ids ending in eos
    attention: bool = False
    requests: Sequence[Request] | None = None  # one a sentence
    lists: Sequence[Ids] | None = None  # shortlists of target ids; tokens, also of requests, are positions in them

    @classmethod
    def of_tensors(cls, source: Tensor, source_lengths: Tensor, **options: Any) -> Sentences:
        """Sentences of padded ids [B, S] with their lengths [B]."""
        rows = zip(source.cpu().numpy(), source_lengths.cpu().tolist())
        return cls([row[:length] for row, length in rows], **options)

    @property
    def lengths(self) -> Ints:
        """[B] of the sources."""
        return np.array([len(source) for source in self.sources])

    @property
    def started(self) -> int:
        """The number of tokens that each translation starts after."""
        return len(self.requests[0].start) if self.requests else 0

    @property
    def include(self) -> Flags:
        """[B] whether a translation must contain phrases."""
        if self.requests is None:
            return np.zeros(len(self.sources), dtype=np.bool_)
        return np.array([bool(request.include) for request in self.requests], dtype=np.bool_)


def refuse_inclusion(requests: Sequence[Request] | None, search: str) -> None:
    """Refuse requests with required phrases, for searches that cannot include them."""
    if any(request.include for request in requests or ()):
        raise UsageError(f"--search {search} does not support required phrases; use --search beam")


def in_places(requests: Sequence[Request] | None, lists: Sequence[Ids]) -> list[Request] | None:
    """Return requests whose tokens are positions in the shortlist of each sentence. A list is sorted and holds every
    requested id; the special ids come first, so their positions are their ids."""
    return None if requests is None else [_own(request, pieces) for request, pieces in zip(requests, lists)]


def in_ids(hypotheses: list[list[Hypothesis]], lists: Sequence[Ids]) -> list[list[Hypothesis]]:
    """Return hypotheses whose tokens are ids of the model."""
    return [
        [
            dataclasses.replace(hypothesis, tokens=np.asarray(pieces, dtype=np.int64)[hypothesis.tokens])
            for hypothesis in of_sentence
        ]
        for of_sentence, pieces in zip(hypotheses, lists)
    ]


def _own(request: Request, pieces: Ids) -> Request:
    places = {int(number): place for place, number in enumerate(pieces)}

    def of(phrases: Iterable[Phrase]) -> tuple[Phrase, ...]:
        return tuple(tuple(places[number] for number in phrase) for phrase in phrases)

    possible = [phrase for phrase in request.exclude if all(number in places for number in phrase)]
    prefix, start = of([request.prefix, request.start])
    return dataclasses.replace(request, prefix=prefix, include=of(request.include), exclude=of(possible), start=start)

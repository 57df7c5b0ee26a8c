"""Searching where each sentence has a list of the pieces that it may need: tokens are then places in the own list."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from nmt.data.hypothesis import Hypothesis
from nmt.search.requests import Phrase, Request

Lists = Sequence[npt.NDArray[np.integer]]  # sorted, the special ids first, which so keep their numbers


def in_places(requests: Sequence[Request] | None, lists: Lists) -> list[Request] | None:
    """Requests in the places of the lists, which have all that must be written."""
    return None if requests is None else [_own(request, pieces) for request, pieces in zip(requests, lists)]


def in_ids(hypotheses: list[list[Hypothesis]], lists: Lists) -> list[list[Hypothesis]]:
    """Hypotheses in the model's ids again."""
    return [
        [dataclasses.replace(one, tokens=np.asarray(pieces, dtype=np.int64)[one.tokens]) for one in of_sentence]
        for of_sentence, pieces in zip(hypotheses, lists)
    ]


def _own(request: Request, pieces: npt.NDArray[np.integer]) -> Request:
    known = {int(number): place for place, number in enumerate(pieces)}

    def of(phrases: Iterable[Phrase]) -> tuple[Phrase, ...]:
        return tuple(tuple(known[number] for number in phrase) for phrase in phrases)

    possible = [phrase for phrase in request.exclude if all(number in known for number in phrase)]
    prefix, include = of([request.prefix])[0], of(request.include)
    return dataclasses.replace(request, prefix=prefix, include=include, exclude=of(possible))

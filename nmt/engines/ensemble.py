"""Several engines as one: the mean of what their models find probable."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.search.decoding import Engine
from nmt.search.ensemble import Ensemble
from nmt.search.model_decoding import ModelEngine


def together_as_one(members: Sequence[Engine], weights: Sequence[float]) -> Engine:
    """Several models as one."""
    limits = [member.longest_source for member in members if member.longest_source is not None]
    return ModelEngine(
        Ensemble([member.decodable for member in members], weights),
        members[0].device,
        scored=Ensemble([member.scored for member in members], weights),
        longest_source=min(limits, default=None),
    )

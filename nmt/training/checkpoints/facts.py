"""What a checkpoint says of its run, for whoever goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

Fingerprint = dict[str, Any]  # options, and what the data is recognised by, under their names


@dataclass(frozen=True)
class Facts:
    """How a run was begun and is computed; part of ``training.json``."""

    vocabularies: str  # what they are recognised by
    fingerprint: Fingerprint  # all that the parameters depend on
    warmup_updates: int  # of a scheduler that was given none
    max_update: int | None  # how many updates the limits allowed; None: it was not known
    batches_in_update: int
    precision: str
    computed_on: str  # device and precision
    validated_as: Fingerprint  # all that the scores of given parameters depend on

    def values(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Facts:
        return cls(**{member.name: values[member.name] for member in fields(cls)})

    def lasting(self) -> dict[str, Any]:
        """What a checkpoint keeps when no run can go on from it any more."""
        return {"vocabularies": self.vocabularies, "precision": self.precision, "validated_as": self.validated_as}

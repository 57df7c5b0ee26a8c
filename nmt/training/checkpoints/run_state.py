"""Where a run stands and how it is made, as plain values of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nmt.training.loop.batches import Position

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


@dataclass
class RunState:
    """Where a run stands between two updates."""

    update: int = 0
    epoch: int = 1  # of the last update
    position: Position = field(default_factory=Position)  # of the next one
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_row: int = 0
    interrupted: tuple[str, ...] | None = None  # a validation was; the reasons of the checkpoint that followed it
    validations_before: int = 0  # those of the history that came before the present scheduler, which does not see them

    def values(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> RunState:
        state = cls(**{**values, "position": Position(**values["position"])})
        state.interrupted = None if state.interrupted is None else tuple(state.interrupted)
        return state

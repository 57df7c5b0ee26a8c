"""Where a run stands; part of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nmt.training.loop.batches import Position


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
        """``skipped`` and ``validations_before`` are not in checkpoints from before they were counted."""
        interrupted = values["interrupted"]
        return cls(
            **{
                **values,
                "position": Position(**values["position"]),
                "interrupted": None if interrupted is None else tuple(interrupted),
            }
        )

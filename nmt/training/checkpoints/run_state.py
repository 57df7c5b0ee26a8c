"""Where a run stands between two updates, and how it was begun; both are stored in ``training.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.training.checkpoints.fingerprint import Fingerprint


@dataclass(frozen=True)
class DataPosition:
    """The next batch to train on. ``TrainingBatches.at`` reads it, and ``Trainer`` moves it after each update."""

    epoch: int = 1  # from 1
    batch: int = 0  # number of batches of the epoch before this one
    stage: int = 0  # of training, from 0
    since: int = 1  # first epoch of this stage


@dataclass
class RunState:
    """Where a run stands between two updates."""

    update: int = 0
    epoch: int = 1  # of the last update, made or skipped; at its end, ``position.epoch`` is already the next one
    position: DataPosition = field(default_factory=DataPosition)  # of the next update
    tokens: int = 0  # target tokens trained on
    seconds: float = 0.0
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_row: int = 0
    interrupted: Sequence[str] | None = None  # after an interrupted validation: the reasons to save that came with it
    validated: int = 0  # the update that was validated last; before the first one nothing is learned
    watched: Mapping[str, Any] = field(default_factory=dict)  # memory of ``LearningWatch``
    times: Mapping[str, float] = field(default_factory=dict)  # seconds of each activity of ``Stopwatch``, of rank 0
    too_large: int | None = None  # size of batches that are computed in halves, of rank 0: one did not fit into memory
    too_large_for: str = ""  # what memory that was
    validations_before: int = 0  # validations before the present scheduler, which does not see them

    def totals(self) -> dict[str, Any]:
        """Return how far the run has come, and at what cost."""
        return {name: getattr(self, name) for name in ("update", "epoch", "tokens", "seconds", "skipped", "times")}


@dataclass(frozen=True)
class RunSettings:
    """How a run was begun and is computed."""

    vocabularies: str  # checksum
    fingerprint: Fingerprint  # everything that the parameters depend on
    warmup_updates: int  # used if the option `warmup_updates` is null
    max_update: int | None  # number of updates that the limits allowed; None: unknown
    batches_in_update: int
    precision: str
    computed_on: str  # device and precision
    validated_as: Fingerprint  # everything that the scores of given parameters depend on
    avoided: Sequence[str] | None = None  # names of ``FastPath``; None: the run began before there was a record
    base: Mapping[str, Any] = field(default_factory=dict)  # of adapters, as ``AdapterBase.facts``; empty: none

    @property
    def device_type(self) -> str:
        """The kind of device that the run was computed on last."""
        return self.computed_on.partition(" ")[0]

    def lasting(self) -> dict[str, Any]:
        """Return what a checkpoint keeps after its training state was deleted."""
        kept = {"vocabularies": self.vocabularies, "precision": self.precision, "validated_as": self.validated_as}
        return kept | dict(self.base)

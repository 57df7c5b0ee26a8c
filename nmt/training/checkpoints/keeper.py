"""The checkpoints of a run under way: what is written, and what must hold of a run before it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.errors import Diverged
from nmt.storage.checkpoints import CheckpointInfo
from nmt.training.checkpoints.facts import Facts
from nmt.training.checkpoints.retention import Cadence
from nmt.training.checkpoints.saver import Saver
from nmt.training.checkpoints.snapshot import not_finite, require_agreement, snapshot
from nmt.training.loop.learner import Learner

LESS_HASTE = "a lower --lr, a longer --warmup-updates or --clip-norm 1 may help"


class Keeper:
    """Takes snapshots of a learner and hands them to a saver."""

    def __init__(self, learner: Learner, saver: Saver, cadence: Cadence, facts: Facts) -> None:
        self.saver = saver
        self.cadence = cadence
        self.last: CheckpointInfo | None = None  # the last checkpoint of the run, or the one that it goes on from
        self._learner = learner
        self._facts = facts

    def save(
        self,
        update: int,
        epoch: int,
        reasons: tuple[str, ...],
        scores: Mapping[str, float],
        values: Mapping[str, Any],
        *,
        best: bool,
    ) -> None:
        """Write a checkpoint; ``values`` are the state of everything but the learner."""
        info = CheckpointInfo(update, epoch, reasons, scores, self._facts.lasting()).joined(self.last)
        self.last = info
        if (name := not_finite(self._learner)) is not None:
            raise self.diverged(f"after update {update} the parameter {name} is not finite")
        require_agreement(self._learner, update)
        required = bool({"final", "signal"} & set(info.reasons))
        with snapshot(self._learner, info, {**values, **self._facts.values()}) as taken:
            self._learner.world.on_main(lambda: self.saver.save(taken, best=best, required=required))

    def diverged(self, what: str) -> Diverged:
        last = self.saver.last()
        good = "there is no checkpoint yet" if last is None else f"the last good checkpoint is {last}"
        return Diverged(f"{what}; {good}; {LESS_HASTE}")

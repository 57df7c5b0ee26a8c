"""When a checkpoint is written, and which of the old ones may go: decisions only, no files."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import Path

from nmt.config.sections import CheckpointConfig
from nmt.storage.checkpoints import CheckpointInfo

FALLBACKS = 2
BY_UPDATES, BY_MINUTES, BY_EPOCH = "update", "minutes", "epoch"


class Cadence:
    """Which of the three rhythms say that now is the time. Times are those of a monotonic clock, in seconds."""

    def __init__(self, options: CheckpointConfig) -> None:
        self._options = options
        self._last = 0.0

    def start(self, now: float) -> None:
        """Minutes count from here: where training begins, and where they were a reason."""
        self._last = now

    def due(self, update: int, epoch: int, *, ends_epoch: bool, now: float) -> tuple[str, ...]:
        """The reasons to write one after ``update``; empty: none."""
        options = self._options
        reasons = {
            BY_UPDATES: options.save_interval_updates is not None and update % options.save_interval_updates == 0,
            BY_MINUTES: options.save_interval_minutes is not None
            and now - self._last >= 60 * options.save_interval_minutes,
            BY_EPOCH: options.save_interval is not None and ends_epoch and epoch % options.save_interval == 0,
        }
        return tuple(reason for reason, applies in reasons.items() if applies)


def superfluous(
    stored: Mapping[Path, CheckpointInfo],
    options: CheckpointConfig,
    *,
    metric: str,
    higher_is_better: bool,
    named: Set[Path],
    written: Path,
) -> list[Path]:
    """The checkpoints that may be deleted, after the one just ``written``. ``stored`` is oldest first; ``named`` are those
    that a pointer names.

    One is kept if any of its claims holds: written at an epoch's end or by updates or minutes and recent enough, among
    the best, or named. Those written for another reason (stop, improvement) only last until something better comes. The
    newest ``FALLBACKS`` of the course that led to it stay in any case: if one is damaged, the run goes on from the other.
    """
    now = stored[written].update if written in stored else math.inf
    kept = {*named, *[path for path, info in stored.items() if info.update <= now][-FALLBACKS:]}
    kept.update(_last(stored, {BY_EPOCH}, options.keep_last_epochs))
    kept.update(_last(stored, {BY_UPDATES, BY_MINUTES}, options.keep_interval_updates))
    kept.update(best_first(stored, metric, higher_is_better=higher_is_better)[: options.keep_best])
    return [path for path in stored if path not in kept]


def beyond_resuming(
    stored: Mapping[Path, CheckpointInfo], resumable: Collection[Path], written: Path, options: CheckpointConfig
) -> Sequence[Path]:
    """Of checkpoints those that need no state of training, or what is left of it, any longer.

    The one just ``written`` keeps it, then those before it; what stands after it belongs to a course that was left.
    """
    if options.keep_training_states is None:
        return ()
    updates = {path: info.update for path, info in stored.items()}
    now = updates.get(written, 0)
    by_worth = sorted(stored, key=lambda path: (path in resumable, updates[path] <= now, updates[path]))
    return by_worth[: -options.keep_training_states]


def best_first(stored: Mapping[Path, CheckpointInfo], metric: str, *, higher_is_better: bool) -> list[Path]:
    """Those that have the score, the best at first; of equals the older one. What is not finite is no score."""
    scored = [path for path, info in stored.items() if math.isfinite(info.scores.get(metric, math.nan))]
    sign = -1.0 if higher_is_better else 1.0
    return sorted(scored, key=lambda path: (sign * stored[path].scores[metric], stored[path].update))


def _last(stored: Mapping[Path, CheckpointInfo], reasons: Set[str], count: int | None) -> Sequence[Path]:
    paths = [path for path, info in stored.items() if reasons & set(info.reasons)]
    return paths if count is None else paths[-count:]

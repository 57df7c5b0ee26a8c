"""Which checkpoints may be deleted, and which are best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from pathlib import Path

from nmt.config.sections import BY_EPOCH, BY_MINUTES, BY_UPDATES, CheckpointConfig
from nmt.storage.checkpoints import CheckpointInfo

FALLBACKS = 2  # newest checkpoints that always stay


def superfluous(
    stored: Mapping[Path, CheckpointInfo],
    options: CheckpointConfig,
    *,
    metric: str,
    higher_is_better: bool,
    named: Set[Path],
    written: Path,
    good_until: int | None = None,
) -> list[Path]:
    """Return the checkpoints that may be deleted after ``written``. ``stored`` is sorted, oldest first; ``named``: the
    checkpoints that a pointer names.

    A checkpoint is kept if a pointer names it, if it is among the best, or if it was written for an epoch, for updates or
    for minutes and is recent enough. The newest ``FALLBACKS`` checkpoints up to ``written`` always stay: if one is damaged,
    the run resumes from the other. ``good_until``: the newest checkpoint of an update up to this one stays too.
    """
    now = stored[written].update if written in stored else math.inf
    kept = {*named, *[path for path, info in stored.items() if info.update <= now][-FALLBACKS:]}
    kept.update(written_for(stored, {BY_EPOCH}, options.keep_last_epochs))
    kept.update(written_for(stored, {BY_UPDATES, BY_MINUTES}, options.keep_interval_updates))
    if good_until is not None:
        kept.update([path for path, info in stored.items() if info.update <= good_until][-1:])
    kept.update(best_first(stored, metric, higher_is_better=higher_is_better)[: options.keep_best])
    return [path for path in stored if path not in kept]


def best_first(stored: Mapping[Path, CheckpointInfo], metric: str, *, higher_is_better: bool) -> list[Path]:
    """Return the checkpoints with a finite score, best first; of equal ones the older first."""
    scored = [path for path, info in stored.items() if math.isfinite(info.scores.get(metric, math.nan))]
    sign = -1.0 if higher_is_better else 1.0
    return sorted(scored, key=lambda path: (sign * stored[path].scores[metric], stored[path].update))


def written_for(stored: Mapping[Path, CheckpointInfo], reasons: Set[str], count: int | None = None) -> list[Path]:
    """Return the last ``count`` checkpoints that were written for one of the reasons; None: all."""
    paths = [path for path, info in stored.items() if reasons & set(info.reasons)]
    return paths if count is None else paths[-count:]

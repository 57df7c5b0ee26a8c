"""Names that files and folders have on a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths; the whole paths where some of them end alike."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]

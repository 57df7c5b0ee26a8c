"""Names that files and folders have on a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths; the whole paths where some of them end alike."""
    short = [os.path.basename(os.path.abspath(path)) for path in paths]  # of "." too, and of a link its own name
    return short if len(set(short)) == len(short) else [str(path) for path in paths]

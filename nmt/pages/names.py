"""Name files and folders on pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of each path, or the whole paths if two last parts are equal."""
    short = [os.path.basename(os.path.abspath(path)) for path in paths]  # of "." too, and of a link its own name
    return short if len(set(short)) == len(short) else [str(path) for path in paths]

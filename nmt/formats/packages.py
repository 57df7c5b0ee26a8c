"""Libraries of other toolkits, which only those install who want their formats."""

from __future__ import annotations

import importlib.util

from nmt import DISTRIBUTION
from nmt.errors import UsageError


def need(package: str, extra: str) -> None:
    """Refuse to go on without a package, and say how to install it."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"{package} is not installed, and this format needs it: pip install '{DISTRIBUTION}[{extra}]'")

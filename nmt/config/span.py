"""Which updates an option means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nmt.errors import UsageError


@dataclass(frozen=True)
class Span:
    """``count`` updates from ``first`` on; None: soon after the process begins."""

    first: int | None
    count: int

    @classmethod
    def parse(cls, text: str, option: str) -> Span:
        """From ``N`` (so many) or ``FROM:TO`` (both included)."""
        found = re.fullmatch(r"([1-9]\d*)(?::(\d+))?", text.strip())
        if found is None or (found[2] is not None and int(found[2]) < int(found[1])):
            raise UsageError(f"{option}={text} is neither a number of updates nor FROM:TO; say 3, or 100:102")
        if found[2] is None:
            return cls(None, int(found[1]))
        return cls(int(found[1]), int(found[2]) - int(found[1]) + 1)

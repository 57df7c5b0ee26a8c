"""Estimate the work of translating a line.

One unit is a search step of a sentence with up to ``USUAL_BEAM`` hypotheses. The server estimates tokens by bytes; a worker
counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nmt.translation.lines import Line

USUAL_BEAM = 5
_BYTES_OF_A_TOKEN = 4  # of UTF-8: subword pieces of European text; at worst a token is one byte
_EACH = 10.0  # search steps added to the tokens of a line: translations of short lines are longer
_USUAL_COST = 40.0  # of a line of 30 tokens
_PHRASES = 2  # number of phrases that double the work of a step: their bookkeeping runs in Python


def hypotheses_of(options: Mapping[str, Any]) -> float:
    """Return the work of a search step with the beam of these options, relative to ``USUAL_BEAM``."""
    beam: int = max(options.get("beam", 1), options.get("nbest", 1))
    return max(1.0, beam / USUAL_BEAM)


def estimated_tokens(text: str) -> float:
    return len(text.encode("utf-8", "replace")) / _BYTES_OF_A_TOKEN


def cost_of(line: Line, options: Mapping[str, Any], tokens: float | None = None) -> float:
    """Return the cost of a line in units. ``tokens``: number of source tokens; None: estimated from bytes."""
    source = estimated_tokens(line.text) if tokens is None else tokens
    target = sum(map(estimated_tokens, (line.prefix, *line.include)))
    steps = _EACH + max(source, target, line.min_length or 0)
    return steps * hypotheses_of(options) * (1 + (len(line.include) + len(line.exclude)) / _PHRASES)


def window_cost(max_lines: int) -> float:
    """Return the largest cost of a window of up to ``max_lines`` lines; a single line may cost more."""
    return _USUAL_COST * max_lines

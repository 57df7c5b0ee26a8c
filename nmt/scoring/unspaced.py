"""Scripts without spaces between words, in which each character counts as a word."""

from __future__ import annotations

import regex

_WITHOUT_SPACES = regex.compile(r"([\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*)")


def spaced(line: str) -> str:
    """Put spaces around each character of such a script."""
    return str(_WITHOUT_SPACES.sub(r" \1 ", line))

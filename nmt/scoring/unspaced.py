"""Writings that have no spaces between words: there each letter is taken for a word."""

from __future__ import annotations

import regex

_WITHOUT_SPACES = regex.compile(r"([\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*)")


def spaced(line: str) -> str:
    """Spaces around each letter of such a writing."""
    return str(_WITHOUT_SPACES.sub(r" \1 ", line))

"""Scripts without spaces between words, in which each character counts as a word."""

from __future__ import annotations

_WITHOUT_SPACES = r"([\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*)"


def spaced(line: str) -> str:
    """Put spaces around each character of such a script."""
    import regex  # which keeps the compiled pattern; --help does not need it

    return str(regex.sub(_WITHOUT_SPACES, r" \1 ", line))

"""Which letters of a picture no installed font has: they would come out as empty boxes."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger("nmt.visualize")

_MOST_NAMED = 5  # letters in a warning
_WIDE, _NARROW = 1.7, 1.0  # of a letter that fills a square, and of any other


def width_of(text: str) -> float:
    """In widths of a usual letter. Chinese, Japanese and Korean letters fill a square; marks above others take no room."""
    letters = (letter for letter in text if not unicodedata.combining(letter))
    return sum(_WIDE if unicodedata.east_asian_width(letter) in "WF" else _NARROW for letter in letters)


def warn_of_missing(texts: Iterable[str]) -> None:
    """Say so where the fonts of this machine lack letters of a picture that is to be made of pixels."""
    missing = missing_letters("".join(texts))
    if missing:
        shown = " ".join(sorted(missing)[:_MOST_NAMED])
        logger.warning(
            f"no font here has {len(missing)} of the letters ({shown}), which come out as boxes; install one, such as "
            f"fonts-noto-cjk for Chinese, Japanese and Korean or fonts-noto-core for others, or write .svg or .html"
        )


def missing_letters(text: str) -> set[str]:
    """Those that neither matplotlib's fonts nor the machine's have."""
    from matplotlib import font_manager, get_data_path
    from matplotlib.ft2font import FT2Font

    missing = {letter for letter in text if not letter.isspace() and unicodedata.category(letter)[0] != "C"}
    own = Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    for file in [str(own), *sorted(font_manager.findSystemFonts())]:
        if not missing:
            break
        try:
            known = FT2Font(file).get_charmap()
        except (RuntimeError, OSError):  # a font that cannot be read has no letters
            continue
        missing -= {letter for letter in missing if ord(letter) in known}
    return missing

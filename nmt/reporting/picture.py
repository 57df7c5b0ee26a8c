"""Pictures as SVG, shown by notebooks and written to files of SVG or PNG."""

from __future__ import annotations

import logging
import textwrap
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from nmt.errors import UsageError, needing
from nmt.storage.files import atomic_write, explained_os_errors

logger = logging.getLogger("nmt.visualize")

_MOST_NAMED = 5  # letters in a warning
_WIDE, _NARROW = 1.7, 1.0  # widths of a letter that fills a square, and of any other


@dataclass(frozen=True)
class Picture:
    """A picture that a notebook shows at the end of a cell."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def written(self, output: Path | str | None) -> Picture:
        """Write the picture to ``output``, if given, as SVG or PNG by its suffix. Return the picture."""
        if output is None:
            return self
        output = Path(output)
        if output.suffix not in (".svg", ".png"):
            raise UsageError(f"pictures are SVG or PNG: name the file {output.with_suffix('.svg')} instead of {output}")
        content = self.svg.encode("utf-8", "replace") if output.suffix == ".svg" else _as_png(self.svg, output)
        with explained_os_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as file:
            file.write(content)
        return self


def width_of(text: str) -> float:
    """Return the width of a text in average letters. Wide letters fill a square; combining marks have no width."""
    letters = (letter for letter in text if not unicodedata.combining(letter))
    return sum(_WIDE if unicodedata.east_asian_width(letter) in "WF" else _NARROW for letter in letters)


def wrapped(title: str, letters: int, max_lines: int = 3) -> list[str]:
    """Return the lines of a title. A title that is too long ends in an ellipsis."""
    return textwrap.wrap(title, letters, max_lines=max_lines, placeholder=" \N{HORIZONTAL ELLIPSIS}")


def _as_png(picture: str, output: Path) -> bytes:
    """Convert SVG to PNG with the fonts of matplotlib, because a server may have none."""
    with needing("plots", f"{output}: PNG", f"; or name the file {output.with_suffix('.svg')}"):
        import resvg_py
        from matplotlib import get_data_path
    texts = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    if missing := missing_letters("".join(letters for text in texts for letters in text.itertext())):
        shown = " ".join(sorted(missing)[:_MOST_NAMED])
        logger.warning(
            f"no installed font has {len(missing)} of the letters ({shown}), which are drawn as boxes; install one, such as "
            f"fonts-noto-cjk for Chinese, Japanese and Korean or fonts-noto-core for others, or write .svg or .html"
        )
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=picture,
            background="white",
            zoom=2,
            font_dirs=[str(Path(get_data_path()) / "fonts" / "ttf")],
            sans_serif_family="DejaVu Sans",
            monospace_family="DejaVu Sans Mono",
        )
    )


def missing_letters(text: str) -> set[str]:
    """Return the letters that neither matplotlib's fonts nor the machine's fonts have; a PNG shows them as empty boxes."""
    from matplotlib import font_manager, get_data_path
    from matplotlib.ft2font import FT2Font

    missing = {letter for letter in text if not letter.isspace() and unicodedata.category(letter)[0] != "C"}
    own = Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    for file in [str(own), *sorted(font_manager.findSystemFonts())]:
        if not missing:
            break
        try:
            known = FT2Font(file).get_charmap()
        except (RuntimeError, OSError):  # an unreadable font has no letters
            continue
        missing -= {letter for letter in missing if ord(letter) in known}
    return missing

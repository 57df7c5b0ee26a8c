"""A picture: SVG, which a notebook shows, and a file of SVG or PNG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt.errors import UsageError
from nmt.storage.files import atomic_write, said_plainly


@dataclass(frozen=True)
class Picture:
    """What a notebook shows where a cell ends with it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def written(self, output: Path | str | None) -> Picture:
        """Itself; in a file too, as it is or as PNG by the ending of its name, if there is one."""
        if output is None:
            return self
        output = Path(output)
        if output.suffix not in (".svg", ".png"):
            raise UsageError(f"pictures are SVG or PNG: name the file {output.with_suffix('.svg')} instead of {output}")
        content = self.svg.encode("utf-8", "replace") if output.suffix == ".svg" else _as_png(self.svg, output)
        with said_plainly(output):
            output.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(output) as file:
            file.write(content)
        return self


def _as_png(picture: str, output: Path) -> bytes:
    """With the fonts that matplotlib brings, since a server may have none."""
    try:
        import matplotlib
        import resvg_py
    except ImportError:
        svg = output.with_suffix(".svg")
        raise UsageError(f"{output}: PNG needs pip install 'nmt-toolkit[plots]'; or name the file {svg}") from None
    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=picture,
            background="white",
            zoom=2,
            font_dirs=[str(Path(matplotlib.get_data_path()) / "fonts" / "ttf")],
            sans_serif_family="DejaVu Sans",
            monospace_family="DejaVu Sans Mono",
        )
    )

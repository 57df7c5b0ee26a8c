"""Pictures of what a model knows: its positional encodings, and its embeddings as a map."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import Floats
from nmt.errors import DataError
from nmt.pages.charts import nice_ticks, render
from nmt.reporting.fonts import width_of
from nmt.reporting.picture import Picture

_LEFT, _TOP = 56, 34  # pixels, where a picture begins on its page
_WIDTH, _HEIGHT = 760, 480
_SIDE = 900  # pixels of a map of embeddings, both ways
_LETTER, _LINE = 6.4, 13  # pixels of a letter on that map
_COLD, _WARM = (33, 91, 176), (190, 60, 32)  # of the most negative and of the most positive value; 0 is white


def plot_positions(vectors: Floats, output: Path | str | None = None, title: str = "") -> Picture:
    """Vectors [positions, D]: a row for each position, a column for each dimension; ``output``: a file of SVG or PNG."""
    positions, width = vectors.shape
    across = [(tick, _LEFT + _WIDTH * tick / width) for tick in nice_ticks(0, width)]
    upwards = [(tick, _TOP + _HEIGHT * tick / positions) for tick in nice_ticks(0, positions)]
    largest = float(np.abs(vectors).max()) or 1.0
    places = {"left": _LEFT, "top": _TOP, "width": _WIDTH, "height": _HEIGHT}
    scale = _as_image(np.linspace(1.0, -1.0, 64)[:, None])
    picture = render(
        "positions.svg",
        image=_as_image(vectors / largest),
        scale=scale,
        largest=largest,
        across=across,
        upwards=upwards,
        title=title,
        **places,
    )
    return Picture(picture).written(output)


def _as_image(values: npt.NDArray[np.floating]) -> str:
    """-1 .. 1 as a PNG, a pixel for each, in the form that a picture can hold."""
    shares = np.clip(np.abs(values), 0.0, 1.0)[..., None]
    inks = np.where(values[..., None] < 0, _COLD, _WARM)
    pixels = np.rint(255 + shares * (inks - 255.0)).astype(np.uint8)
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    content = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode("ascii")


@dataclass(frozen=True)
class _Point:
    """A piece on the map, in pixels; ``named``: there is room for its letters."""

    piece: str
    x: float
    y: float
    named: bool
    rank: float  # 0: the most frequent, 1: the least


def plot_embeddings(
    pieces: Sequence[str], vectors: Floats, output: Path | str | None = None, title: str = ""
) -> Picture:
    """Vectors [pieces, D], the most frequent first, in the two dimensions of their largest variance; ``output``: a file
    of SVG or PNG."""
    if len(pieces) < 3:
        raise DataError(f"a map needs three pieces at least, and there are {len(pieces)}")
    places, shares = principal_plane(vectors)
    low, high = places.min(0), places.max(0)
    scaled = (places - low) / np.where(high > low, high - low, 1.0)
    margin = 60
    points, taken = list[_Point](), list[tuple[float, float, float, float]]()
    for number, (piece, (right, up)) in enumerate(zip(pieces, scaled.tolist())):
        x, y = margin + right * (_SIDE - 2 * margin), _TOP + 16 + (1 - up) * (_SIDE - 2 * margin)
        box = (x + 3, y - _LINE + 4, x + 5 + _LETTER * width_of(piece), y + 4)
        free = box[2] < _SIDE and not any(_overlap(box, other) for other in taken)
        if free:
            taken.append(box)
        points.append(_Point(piece, x, y, free, number / len(pieces)))
    note = f"the two directions of largest variance: {100 * shares[0]:.0f} % and {100 * shares[1]:.0f} % of it"
    picture = render("embeddings.svg", points=points, title=title, note=note, side=_SIDE)
    return Picture(picture).written(output)


def principal_plane(vectors: Floats) -> tuple[npt.NDArray[np.float64], tuple[float, float]]:
    """Principal components: vectors [n, D] -> places [n, 2], and the share of the variance in each direction.

    A direction and its opposite are as good; the one is taken in which the component of largest size is positive.
    """
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    plane = directions[:2]
    plane *= np.sign(plane[np.arange(len(plane)), np.abs(plane).argmax(1)])[:, None]
    shares = sizes**2 / max(float((sizes**2).sum()), 1e-300)
    return centred @ plane.T, (float(shares[0]), float(shares[1]))


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]

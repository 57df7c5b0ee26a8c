"""Draw the positional encodings of a model, and a map of its embeddings."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import Floats
from nmt.errors import DataError, needing
from nmt.pages.charts import nice_ticks, render
from nmt.reporting.picture import Picture, width_of

_LEFT, _TOP = 56, 34  # pixels, where a picture begins on its page
_WIDTH, _HEIGHT = 760, 480
_SIDE = 900  # pixels of a map of embeddings, both ways
_LETTER, _LINE = 6.4, 13  # pixels of a letter on that map
_COLD, _WARM = (33, 91, 176), (190, 60, 32)  # colors of the lowest and the highest value; 0 is white


def plot_positions(vectors: Floats, output: Path | str | None = None, title: str = "") -> Picture:
    """Draw vectors [positions, D], a row for each position. ``output``: a file of SVG or PNG."""
    positions, width = vectors.shape
    largest = float(np.abs(vectors).max()) or 1.0
    picture = render(
        "positions.svg",
        image=_as_image(vectors / largest),
        scale=_as_image(np.linspace(1.0, -1.0, 64)[:, None]),
        largest=largest,
        across=[(tick, _LEFT + _WIDTH * tick / width) for tick in nice_ticks(0, width)],
        upwards=[(tick, _TOP + _HEIGHT * tick / positions) for tick in nice_ticks(0, positions)],
        title=title,
        left=_LEFT,
        top=_TOP,
        width=_WIDTH,
        height=_HEIGHT,
    )
    return Picture(picture).written(output)


def _as_image(values: npt.NDArray[np.floating]) -> str:
    """Return values of -1 .. 1 as the data URI of a PNG image with one pixel for each."""
    with needing("plots", "a picture of positions"):
        from matplotlib.image import imsave
    shares = np.clip(np.abs(values), 0.0, 1.0)[..., None]
    colors = np.where(values[..., None] < 0, _COLD, _WARM)
    content = io.BytesIO()
    pixels = np.rint(255 + shares * (colors - 255.0)).astype(np.uint8)
    without_version: Any = {"Software": None}  # so that the same values make the same file
    imsave(content, pixels, format="png", metadata=without_version)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def plot_embeddings(
    pieces: Sequence[str], vectors: Floats, output: Path | str | None = None, title: str = ""
) -> Picture:
    """Draw vectors [tokens, D], the most frequent first, in the plane of their largest variance. ``output``: a file of SVG
    or PNG."""
    if len(pieces) < 3:
        raise DataError(f"a map needs at least three tokens, but there are {len(pieces)}")
    places, shares = principal_plane(vectors)
    low, high = places.min(0), places.max(0)
    scaled = (places - low) / np.where(high > low, high - low, 1.0)
    margin = 60
    points, label_boxes = list[dict[str, Any]](), list[tuple[float, float, float, float]]()
    for number, (piece, (right, up)) in enumerate(zip(pieces, scaled.tolist())):
        x, y = margin + right * (_SIDE - 2 * margin), _TOP + 16 + (1 - up) * (_SIDE - 2 * margin)
        box = (x + 3, y - _LINE + 4, x + 5 + _LETTER * width_of(piece), y + 4)
        free = box[2] < _SIDE and not any(_overlap(box, other) for other in label_boxes)
        if free:
            label_boxes.append(box)
        rank = number / len(pieces)  # 0: the most frequent, 1: the least
        points.append({"piece": piece, "x": x, "y": y, "named": free, "rank": rank})
    note = f"the two directions of largest variance: {100 * shares[0]:.0f} % and {100 * shares[1]:.0f} % of it"
    picture = render("embeddings.svg", points=points, title=title, note=note, side=_SIDE)
    return Picture(picture).written(output)


def principal_plane(vectors: Floats) -> tuple[npt.NDArray[np.float64], tuple[float, float]]:
    """Return the first two principal components of vectors [n, D], as [n, 2], and their shares of the variance.

    The sign of a direction is chosen such that its largest component is positive. torch computes, because ``--threads`` does
    not limit the threads of NumPy.
    """
    import torch

    centered = torch.from_numpy(vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64))
    _, sizes, directions = torch.linalg.svd(centered, full_matrices=False)
    plane = directions[:2]
    plane = plane * plane.gather(1, plane.abs().argmax(1, keepdim=True)).sign()
    first, second, *_ = (sizes.square() / sizes.square().sum().clamp_min(1e-300)).tolist()
    places: npt.NDArray[np.float64] = (centered @ plane.T).numpy()
    return places, (first, second)


def _overlap(box: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]

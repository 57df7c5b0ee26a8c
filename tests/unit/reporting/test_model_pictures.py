"""Pictures of positions and embeddings."""

from __future__ import annotations

import base64
import io
import re
import sys

import numpy as np
import pytest
from matplotlib.image import imread

from nmt.errors import DataError, UsageError
from nmt.reporting.model_pictures import plot_embeddings, plot_positions, principal_plane


def pixels(encoded: str) -> np.ndarray:
    """Return the pixels of a PNG: [height, width, red green blue], 0 .. 255."""
    return np.rint(255 * imread(io.BytesIO(base64.b64decode(encoded)), format="png"))[..., :3]


def test_a_row_of_the_picture_is_a_position_and_its_colours_are_the_values(tmp_path):
    vectors = np.array([[0.0, 2.0, -2.0], [1.0, 0.0, -1.0]], dtype=np.float32)
    plot_positions(vectors, tmp_path / "x.svg", "positions")
    first, _ = re.findall(r'xlink:href="data:image/png;base64,(.*?)"', (tmp_path / "x.svg").read_text())
    assert b"atplotlib" not in base64.b64decode(first)  # its version would change the file
    image = pixels(first).astype(int)
    assert image.shape == (2, 3, 3) and image[0, 0].tolist() == [255, 255, 255] == image[1, 1].tolist()
    assert image[0, 1].tolist() == [190, 60, 32] and image[0, 2].tolist() == [33, 91, 176]  # largest, smallest
    assert image[0, 1, 2] < image[1, 0, 2] < 255


def test_the_plane_is_that_of_the_largest_variance():
    chance = np.random.default_rng(1)
    vectors = (chance.normal(size=(50, 6)) * [5, 3, 1, 1, 0.5, 0.1] + 7).astype(np.float32)
    places, shares = principal_plane(vectors)
    values, directions = np.linalg.eigh(np.cov(vectors.T))
    expected = (vectors - vectors.mean(0)) @ directions[:, [-1, -2]]
    np.testing.assert_allclose(np.abs(places), np.abs(expected), atol=1e-4)
    np.testing.assert_allclose(shares, values[[-1, -2]] / values.sum(), rtol=1e-4)


def test_every_piece_has_a_point_and_names_do_not_overlap(tmp_path):
    vectors = np.random.default_rng(2).normal(size=(40, 8)).astype(np.float32)
    vectors[1] = vectors[0]
    plot_embeddings([f"<{number}>" for number in range(40)], vectors, tmp_path / "x.svg", "embeddings")
    picture = (tmp_path / "x.svg").read_text(encoding="utf-8")
    assert re.findall(r"<title>&lt;(\d+)&gt;", picture) == [str(number) for number in range(40)]
    named = re.findall(r'fill="#222">&lt;(\d+)&gt;', picture)
    assert "0" in named and "1" not in named


def test_two_pieces_are_no_map(tmp_path):
    with pytest.raises(DataError, match="three tokens"):
        plot_embeddings(["a", "b"], np.eye(2, dtype=np.float32), tmp_path / "x.svg", "embeddings")


def test_without_matplotlib_positions_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.image", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-toolkit\[plots\]'"):
        plot_positions(np.eye(2, dtype=np.float32))

"""Word alignments of a corpus folder, as pairs of positions in the pieces of both sides.

<split>.alignments.npy           source and target position of each pair, one after the other in one array
<split>.alignment-offsets.npy    where the pairs of each sentence begin in it, and the end of the last
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError

Ids = npt.NDArray[np.integer]
Lengths = npt.NDArray[np.int64]


class Alignments(Protocol):
    """Of each pair of a split, the aligned positions."""

    def __getitem__(self, index: int) -> Ids:
        """[P, 2] source and target positions; a pair without any has P = 0."""
        ...


def alignment_files(split: str) -> tuple[str, str]:
    """Names of the two arrays."""
    return f"{split}.alignments.npy", f"{split}.alignment-offsets.npy"


class StoredAlignments:
    """The two arrays, mapped into memory and checked once, here."""

    def __init__(self, folder: Path, split: str, source_lengths: Lengths, target_lengths: Lengths) -> None:
        positions_path, offsets_path = (folder / name for name in alignment_files(split))
        self._positions, self._offsets = mapped(positions_path), mapped(offsets_path)
        _check_offsets(offsets_path, self._offsets, len(self._positions), len(source_lengths))
        counts = np.diff(self._offsets) // 2
        for side, lengths in enumerate((source_lengths, target_lengths)):
            _check_positions(positions_path, self._positions[side::2], counts, lengths)

    def __getitem__(self, index: int) -> Ids:
        return self._positions[self._offsets[index] : self._offsets[index + 1]].reshape(-1, 2)


class ChainedAlignments:
    """Those of several corpora one after the other; ``sizes`` are their numbers of pairs."""

    def __init__(self, parts: Sequence[Alignments], sizes: Sequence[int]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *sizes])

    def __getitem__(self, index: int) -> Ids:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part][index - int(self._starts[part])]


def mapped(path: Path) -> Ids:
    """A row of integers on disk, mapped into memory."""
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, TypeError, SyntaxError, OverflowError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{path} is damaged: it should hold one row of integers")
    return array.view(np.ndarray)  # slices of a memmap object cost microseconds each


def _check_offsets(path: Path, offsets: Ids, size: int, num_sentences: int) -> None:
    steps = np.diff(offsets)
    sound = len(offsets) == num_sentences + 1 and offsets[0] == 0 and offsets[-1] == size
    if not sound or bool(np.any((steps < 0) | (steps % 2 == 1))):
        raise DataError(f"{path} is damaged: it does not cut the {size} positions beside it into {num_sentences} parts")


def _check_positions(path: Path, positions: Ids, counts: Lengths, lengths: Lengths) -> None:
    """Of one side: within the sentence, eos not included."""
    beyond = (positions < 0) | (positions >= np.repeat(lengths - 1, counts))
    if bool(beyond.any()):
        first = int(beyond.argmax())
        sentence = int(np.searchsorted(np.cumsum(counts), first, side="right"))
        raise DataError(
            f"{path} is damaged: sentence {sentence} has a pair with position {int(positions[first])}, but only "
            f"{int(lengths[sentence]) - 1} pieces"
        )

"""Rows of integers on disk, such as the ids of sentences or word alignments: reading and writing them.

Each kind of row is two plain .npy files: all numbers in one array, and the offset of each row and the end of the last.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.corpus.lengths import ChainedLengths, Lengths, StoredLengths, blocks
from nmt.data.vocabulary import EOS, Ids, Ints, Vocabulary
from nmt.errors import DataError, quantity
from nmt.storage.arrays import map_integers, map_weights

# An array of up to this many numbers is checked when it is opened: a quarter of a gigabyte, some tenths of a second.
LARGE = 2**27


class RaggedArray:
    """Two stored arrays, mapped and checked; each row has at least ``least`` numbers.

    Files are replaced, never rewritten in place, so a mapped array never changes. Memory does not grow with the rows.
    """

    def __init__(self, values: Path, offsets: Path, least: int = 0, read: Callable[[Path], Any] = map_integers) -> None:
        """``read`` maps the numbers."""
        self.values, self.offsets = read(values), map_integers(offsets)
        whole = len(self.offsets) > 0 and self.offsets[0] == 0 and self.offsets[-1] == len(self.values)
        self.lengths = StoredLengths(self.offsets)
        self.is_large = len(self.values) > LARGE  # then each row is checked when it is read
        if not whole or any(bool(np.any(self.lengths[block] < least)) for block in blocks(len(self.lengths))):
            raise DataError(
                f"{offsets} is damaged: its offsets do not divide the {len(self.values)} stored numbers into sentences"
            )

    def __getitem__(self, index: int) -> Ids:
        row: Ids = self.values[self.offsets[index] : self.offsets[index + 1]]
        return row

    def text(self) -> list[str] | None:
        """Return the lines before tokenization; None if they are not stored, as for the training split."""
        return None


class ChainedRows:
    """The concatenation of several parts."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        lengths = ChainedLengths([part.lengths for part in parts])
        self.lengths: Lengths = lengths
        self._starts = lengths.starts

    def __getitem__(self, index: int) -> Ids:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part][index - int(self._starts[part])]

    def text(self) -> list[str] | None:
        texts = [part.text() for part in self._parts]
        return None if None in texts else [line for text in texts if text is not None for line in text]


Rows = RaggedArray | ChainedRows  # one row of integers for each sentence
Append = Callable[[Ids, Ints], None]


@contextlib.contextmanager
def ragged_writer(values: Path, offsets: Path, dtype: type[np.generic]) -> Iterator[Append]:
    """Write the two arrays while their size is unknown; the function takes the concatenated rows and their lengths.

    Until the end, and after an error, the files are valid and empty.
    """
    written, index = np.dtype(dtype), np.dtype(np.int64)
    rows, end = 0, 0

    def append(numbers: Ids, lengths: Ints) -> None:
        nonlocal rows, end
        ends = end + np.cumsum(lengths, dtype=index)
        number_file.write(np.ascontiguousarray(numbers, dtype=written).data)
        end_file.write(ends.data)
        rows, end = rows + len(ends), int(ends[-1]) if len(ends) else end

    with open(values, "wb") as number_file, open(offsets, "wb") as end_file:
        number_file.write(_header(written, 0))
        end_file.write(_header(index, 0) + np.zeros(1, dtype=index).tobytes())
        yield append
        for file, kind, count in ((number_file, written, end), (end_file, index, rows + 1)):
            file.seek(0)
            file.write(_header(kind, count))


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the first 128 bytes of an .npy file; numpy leaves room for any count."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    return file.getvalue()


def sentence_files(folder: Path, split: str, language: str) -> tuple[Path, Path]:
    """Return the two arrays of one language of a split."""
    return folder / f"{split}.{language}.tokens.npy", folder / f"{split}.{language}.offsets.npy"


def alignment_files(split: str) -> tuple[str, str]:
    """Return the names of the two arrays of alignments."""
    return f"{split}.alignments.npy", f"{split}.alignment-offsets.npy"


def alignment_writer(folder: Path, split: str, longest: int) -> AbstractContextManager[Append]:
    """Write the alignments of a split whose longest sentence has ``longest`` tokens."""
    values, offsets = (folder / name for name in alignment_files(split))
    return ragged_writer(values, offsets, np.uint16 if longest < 2**16 else np.uint32)


def weight_files(split: str) -> tuple[str, str]:
    """Return the names of the two arrays of weights."""
    return f"{split}.weights.npy", f"{split}.weight-offsets.npy"


def weight_writer(folder: Path, split: str) -> AbstractContextManager[Append]:
    """Write the weights of a split: a number for each pair, or for each of its target tokens."""
    values, offsets = (folder / name for name in weight_files(split))
    return ragged_writer(values, offsets, np.float32)


class StoredWeights(RaggedArray):
    """The weights of a split on disk."""

    def __init__(self, folder: Path, split: str, target_lengths: Lengths, started: int) -> None:
        values, offsets = (folder / name for name in weight_files(split))
        super().__init__(values, offsets, least=1, read=map_weights)
        self.of_tokens = len(self.values) > len(self.lengths)
        self.are_zero = not bool(self.values.any())
        tokens = (
            bool(np.any(self.lengths[part] != target_lengths[part] - started)) for part in blocks(len(self.lengths))
        )
        if len(self.lengths) != len(target_lengths) or (self.of_tokens and any(tokens)):
            raise DataError(f"{offsets} is damaged: it does not hold weights of {len(target_lengths)} pairs")


class ChainedWeights:
    """The weights of the pairs of several parts; None: all weights of a part are 1."""

    _UNIT = np.ones(1, dtype=np.float32)

    def __init__(self, parts: Sequence[Weights | None], sizes: Sequence[int]) -> None:
        self._parts, self._starts = parts, np.cumsum([0, *sizes])
        self.of_tokens: bool = any(part is not None and part.of_tokens for part in parts)
        self.are_zero: bool = all(part is not None and part.are_zero for part in parts)

    def __getitem__(self, index: int) -> Any:
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        part = self._parts[number]
        return self._UNIT if part is None else part[index - int(self._starts[number])]


Weights = StoredWeights | ChainedWeights  # of each pair: one number, or one of each target token


class StoredSentences(RaggedArray):
    """One language of a split on disk."""

    def __init__(self, folder: Path, split: str, language: str, vocabulary: Vocabulary) -> None:
        self._text_path = folder / f"{split}.{language}.txt"
        tokens, offsets = sentence_files(folder, split, language)
        super().__init__(tokens, offsets, least=1)
        self._path, self._pieces = tokens, len(vocabulary)
        if not self.is_large:
            for block in blocks(len(self.lengths)):
                self._check(block)

    def __getitem__(self, index: int) -> Ids:
        ids = super().__getitem__(index)
        if self.is_large and (ids[-1] != EOS or max(ids.tolist()) >= self._pieces):
            self._check(slice(index, index + 1))
        return ids

    def _check(self, sentences: slice) -> None:
        """Refuse ids beyond the vocabulary, which would be an assertion of the GPU, and sentences without eos."""
        first, ends = self.offsets[sentences.start], self.offsets[sentences.start + 1 : sentences.stop + 1]
        ids = self.values[first : ends[-1]]
        highest = int(ids.max())
        if highest >= self._pieces or int(ids.min()) < 0:
            sentence = int(np.searchsorted(self.offsets, first + int(np.argmax(ids)), side="right"))
            beyond = f"sentence {sentence} holds id {highest}, but the vocabulary has {self._pieces} tokens"
            raise DataError(f"{self._path} is damaged: {beyond}")
        if bool(np.any(self.values[ends - 1] != EOS)):
            raise DataError(f"{self._path} is damaged: a sentence does not end in eos")

    def text(self) -> list[str] | None:
        if not self._text_path.is_file():
            return None
        try:  # nmt writes clean UTF-8 with "\n" only after each line
            lines = self._text_path.read_bytes().decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise DataError(f"{self._text_path} is damaged: byte {error.start} is not UTF-8") from None
        if len(lines) != len(self.lengths):
            raise DataError(
                f"{self._text_path} is damaged: {quantity(len(lines), 'line')} instead of {len(self.lengths)}"
            )
        return lines


class StoredAlignments(RaggedArray):
    """The alignments of a split on disk."""

    def __init__(self, folder: Path, split: str, source_lengths: Lengths, target_lengths: Lengths) -> None:
        positions, offsets = (folder / name for name in alignment_files(split))
        super().__init__(positions, offsets)
        self._path, self._sides = positions, (source_lengths, target_lengths)
        odd = (bool(np.any(self.lengths[block] % 2)) for block in blocks(len(self.lengths)))
        if len(self.lengths) != len(source_lengths) or any(odd):
            raise DataError(f"{offsets} is damaged: it does not hold alignments of {len(source_lengths)} sentences")
        if not self.is_large:
            for block in blocks(len(self.lengths)):
                self._check(block)

    def __getitem__(self, index: int) -> Ids:
        """Return source and target positions [P, 2]; P may be 0."""
        if self.is_large:
            self._check(slice(index, index + 1))
        return super().__getitem__(index).reshape(-1, 2)

    def _check(self, sentences: slice) -> None:
        """Refuse positions beyond the sentences."""
        pairs = self.values[self.offsets[sentences.start] : self.offsets[sentences.stop]].reshape(-1, 2)
        counts = self.lengths[sentences] // 2
        for positions, side in zip(pairs.T, self._sides):
            beyond = (positions < 0) | (positions >= np.repeat(side[sentences] - 1, counts))  # eos is not aligned
            if bool(beyond.any()):
                first = int(beyond.argmax())
                sentence = sentences.start + int(np.searchsorted(np.cumsum(counts), first, side="right"))
                raise DataError(
                    f"{self._path} is damaged: sentence {sentence} has a pair with position {int(positions[first])}, but "
                    f"only {int(side[sentence]) - 1} tokens"
                )

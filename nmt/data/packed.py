"""Plain, gzip and xz files, opened as plain bytes. Their first bytes tell what they are, not their names."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from nmt.errors import DataError, MissingInputError, StorageError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
# A compressed file may grow to this size unquestioned; beyond it, text that was packed better than this is no text.
_BOMB_BYTES = 2**28
_BOMB_RATIO = 500


class BinaryReader(Protocol):
    """What is needed of an open file; with ``read1`` too, lines come as soon as they are there."""

    def read(self, size: int, /) -> bytes: ...


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryReader]:
    """The content of a file, decompressed."""
    with _open(path) as file:
        try:
            head = file.peek(8)
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}") from error
        if head.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield _Guarded(path, unpacked, file)
        elif head.startswith(_XZ):
            with lzma.LZMAFile(file) as unpacked_xz:
                yield _Guarded(path, unpacked_xz, file)
        elif head and path.suffix in (".gz", ".xz"):
            kind = {".gz": "gzip", ".xz": "xz"}[path.suffix]
            raise DataError(f"{path} is named {path.suffix} but is not {kind} data; rename it if it is plain text")
        else:
            yield file


def _open(path: Path) -> io.BufferedReader:
    try:
        return open(path, "rb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingInputError(f"cannot read {path}: {reason} (working directory: {os.getcwd()})") from None


class _Guarded:
    """A decompressed file that refuses to grow without end."""

    def __init__(self, path: Path, unpacked: gzip.GzipFile | lzma.LZMAFile, packed: io.BufferedReader) -> None:
        self._path, self._unpacked, self._packed = path, unpacked, packed
        self._size = 0  # bytes read so far

    def read(self, size: int, /) -> bytes:
        block = self._unpacked.read1(size)
        self._size += len(block)
        if self._size > _BOMB_BYTES and self._packed.seekable() and self._size > _BOMB_RATIO * self._packed.tell():
            raise DataError(
                f"{self._path} decompresses to more than {_BOMB_RATIO} times its size, which text does not; "
                f"stopped after {self._size} bytes. Decompress it first if it is what you want"
            )
        return block

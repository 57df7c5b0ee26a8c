"""Plain, gzip, xz and zstd files, read as one stream of bytes."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from nmt.errors import DataError, MissingInputError, StorageError

UNPACKING_ERRORS = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
PACKED = (".gz", ".xz", ".zst")  # endings of packed files
_BLOCK = 2**20
# The first bytes of packed files; those of zstd may begin with a skippable frame, as pzstd writes it.
_GZIP, _XZ, _ZSTD = map(re.compile, (rb"\x1f\x8b", rb"\xfd7zXZ\x00", rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"))
# A compressed file may grow to this size unchecked; beyond it, a higher ratio is not text.
_BOMB_BYTES = 2**28
_BOMB_RATIO = 500


class BinaryReader(Protocol):
    """An open file; with a method ``read1``, lines arrive without delay."""

    def read(self, size: int, /) -> bytes: ...


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryReader]:
    """The content of a file, decompressed."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingInputError(f"cannot read {path}: {reason} (working directory: {os.getcwd()})") from None
    with file:
        try:
            head = file.peek(8)
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}") from error
        unpack = next((unpack for start, unpack in _UNPACKERS.items() if start.match(head)), None)
        if unpack is not None:
            yield _Guarded(path, unpack(file), file)
        elif head and path.suffix in PACKED:
            kind = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[path.suffix]
            raise DataError(f"{path} is named {path.suffix} but is not {kind} data; rename it if it is plain text")
        else:
            yield file


def _gzip(file: io.BufferedReader) -> Iterator[bytes]:
    unpacked = gzip.GzipFile(fileobj=file)
    return iter(lambda: unpacked.read1(_BLOCK), b"")


def _streams(
    begin: Callable[[], lzma.LZMADecompressor | zstd.ZstdDecompressor], padding: bytes, file: io.BufferedReader
) -> Iterator[bytes]:
    """Unpack xz or zstd, stream after stream. The libraries' readers silently drop the rest of a file at a faulty stream."""
    packed = file.read(_BLOCK)
    while packed:
        stream = begin()
        while not stream.eof:
            if stream.needs_input and not (packed := packed or file.read(_BLOCK)):
                raise EOFError
            if block := stream.decompress(packed, _BLOCK):
                yield block
            packed = b""
        packed = stream.unused_data
        while not packed.strip(padding) and (packed := file.read(_BLOCK)):
            pass
        packed = packed.lstrip(padding)


_UNPACKERS: dict[re.Pattern[bytes], Callable[[io.BufferedReader], Iterator[bytes]]] = {
    _GZIP: _gzip,
    _XZ: functools.partial(_streams, lzma.LZMADecompressor, b"\0"),
    _ZSTD: functools.partial(_streams, zstd.ZstdDecompressor, b""),
}


class _Guarded:
    """A decompressed file that refuses to become implausibly large."""

    def __init__(self, path: Path, unpacked: Iterator[bytes], packed: io.BufferedReader) -> None:
        self._path, self._unpacked, self._packed = path, unpacked, packed
        self._size = 0  # bytes read so far

    def read(self, size: int, /) -> bytes:
        block = next(self._unpacked, b"")
        self._size += len(block)
        if self._size > _BOMB_BYTES and self._packed.seekable() and self._size > _BOMB_RATIO * self._packed.tell():
            raise DataError(
                f"{self._path} decompresses to more than {_BOMB_RATIO} times its size, which is unusual for text; "
                f"stopped after {self._size} bytes: if the file is right, decompress it first"
            )
        return block

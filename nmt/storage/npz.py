"""Read archives of ``numpy.savez`` without running anything in them; no array is larger than its file."""

from __future__ import annotations

import io
import math
from pathlib import Path

from numpy.lib import format as numpy_format

from nmt.errors import DataError
from nmt.storage.arrays import FAULTS, Numbers
from nmt.storage.reading import Malformed, map_file
from nmt.storage.stored_archive import BEGINNING, StoredArchive

_ENDING = ".npy"
_LONGEST_HEADER = 10_000  # bytes


def read_npz(path: Path) -> dict[str, Numbers]:
    """Return the arrays by name, as read-only views of the mapped file."""
    content = map_file(path)
    if content[:4] != BEGINNING:
        raise DataError(f"{path} is not a numpy archive (.npz)")
    try:
        archive = StoredArchive(path, content)
        return {name.removesuffix(_ENDING): _array(archive.content(name), name) for name in archive.names}
    except FAULTS as error:
        raise DataError(f"{path} is damaged, or not a numpy archive: {error}") from None


def _array(content: Numbers, name: str) -> Numbers:
    file = io.BytesIO(content[:_LONGEST_HEADER].tobytes())
    version = numpy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise Malformed(f"member {name[:80]!r} is of the unknown version {version[0]}.{version[1]}")
    read = numpy_format.read_array_header_1_0 if version == (1, 0) else numpy_format.read_array_header_2_0
    shape, by_columns, kind = read(file)
    numbers = content[file.tell() :]
    if kind.hasobject or not kind.isnative:
        raise Malformed(f"member {name[:80]!r} holds {kind}, which this machine cannot read as numbers")
    if math.prod(shape) * kind.itemsize != len(numbers):
        raise Malformed(f"member {name[:80]!r} should hold {shape} numbers of {kind}, and has {len(numbers)} bytes")
    array: Numbers = numbers.view(kind).reshape(shape, order="F" if by_columns else "C")
    return array

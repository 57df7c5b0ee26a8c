"""Archives of numpy (``numpy.savez``) as plain arrays. Nothing of them is run, and no array is larger than its file."""

from __future__ import annotations

import io
import math
from pathlib import Path

from numpy.lib import format as numpy_format

from nmt.errors import DataError
from nmt.storage.arrays import FAULTS
from nmt.storage.pickles import Malformed
from nmt.storage.stored_archive import BEGINNING, StoredArchive, map_file
from nmt.storage.torch_values import Numbers

_ENDING = ".npy"
_LONGEST_HEADER = 10_000  # bytes


def read_npz(path: Path) -> dict[str, Numbers]:
    """The arrays by their names. They are views of the mapped file and cannot be written to."""
    content = map_file(path)
    if content[:4] != BEGINNING:
        raise DataError(f"{path} is no archive of numpy (.npz)")
    try:
        archive = StoredArchive(path, content)
        return {name.removesuffix(_ENDING): _array(archive.content(name), name) for name in archive.names}
    except FAULTS as error:
        raise DataError(f"{path} is damaged, or no archive of numpy: {error}") from None


def _array(content: Numbers, name: str) -> Numbers:
    file = io.BytesIO(content[:_LONGEST_HEADER].tobytes())
    version = numpy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise Malformed(f"member {name[:80]!r} is of the unknown version {version[0]}.{version[1]}")
    read = numpy_format.read_array_header_1_0 if version == (1, 0) else numpy_format.read_array_header_2_0
    shape, by_columns, kind = read(file)
    numbers = content[file.tell() :]
    if kind.hasobject or not kind.isnative:
        raise Malformed(f"member {name[:80]!r} holds {kind}, not numbers of this machine")
    if math.prod(shape) * kind.itemsize != len(numbers):
        raise Malformed(f"member {name[:80]!r} should hold {shape} numbers of {kind}, and has {len(numbers)} bytes")
    array: Numbers = numbers.view(kind).reshape(shape, order="F" if by_columns else "C")
    return array

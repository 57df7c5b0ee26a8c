"""Read files of ``torch.save`` without torch, and without running anything in them.

Since torch 1.6 such a file is a zip archive of uncompressed members:

    NAME/data.pkl     a pickle in which each tensor says which numbers it shows
    NAME/data/KEY     the numbers of one storage; several tensors may share it
    NAME/byteorder    "little", of newer versions

Before, it was a sequence of pickles (a magic number, a version, facts about the machine, the value, the keys of the
storages), then for each storage the count of its numbers and the numbers. Checkpoints of fairseq and ``pytorch_model.bin``
are such files.

Arrays are views of the mapped file. A member of an archive is read once, for its checksum; bfloat16 is widened.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from nmt.errors import DataError
from nmt.storage.arrays import Numbers, item_size, numbers_of, widened
from nmt.storage.foreign import describe
from nmt.storage.pickles import Persistent, read_pickle
from nmt.storage.reading import Malformed, map_file
from nmt.storage.stored_archive import BEGINNING, StoredArchive
from nmt.storage.torch_values import Plain, Storage, is_known, storage_of

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the format before torch 1.6
# Both readers raise these for a damaged archive or pickle.
_FAULTS = (ValueError, OverflowError, struct.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError)


def read_torch_file(path: Path, skip: Collection[str] = ()) -> Any:
    """Return the saved value as a plain tree of dicts, lists (tuples too), numbers, strings and read-only arrays.

    ``skip``: keys of the outermost dict whose values are not read and become None, such as "last_optimizer_state".
    """
    content = map_file(path)
    zipped = content[:4] == BEGINNING
    if not zipped and content[:1] != b"\x80":
        raise DataError(f"{path} is {describe(path)}, not one that torch.save wrote; name the checkpoint (.pt or .bin)")
    try:
        source = _Archive(path, content) if zipped else _OldFile(path, content)
        return Plain(_Storages(source).numbers).root(source.value, skip)
    except _FAULTS as error:
        raise DataError(f"{path} is damaged, or not written by torch.save: {error}") from None


class _Storages:
    """The numbers of each storage, made once: tensors that shared them still do."""

    def __init__(self, source: _Archive | _OldFile) -> None:
        self._source = source
        self._known: dict[tuple[str, str], Numbers] = {}

    def numbers(self, storage: Storage) -> Numbers:
        name = storage.key, storage.type
        if name not in self._known:
            self._known[name] = _typed(self._source.bytes_of(storage), storage)
        whole = self._known[name]
        if storage.begin + storage.count > whole.size:
            raise Malformed(
                f"storage {storage.key!r} should hold {storage.begin + storage.count} numbers, and holds {whole.size}"
            )
        return whole[storage.begin : storage.begin + storage.count]


def _typed(content: Numbers, storage: Storage) -> Numbers:
    if storage.type == "?":
        return content.astype(np.bool_)  # a byte that is neither 0 nor 1 would confuse numpy
    size = item_size(storage.type)
    return widened(numbers_of(content[: len(content) // size * size], storage.type))


class _Archive:
    """The format since torch 1.6: a zip archive."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._members = StoredArchive(path, content)
        pickled = [name for name in self._members.names if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickled) != 1 or pickled[0].startswith(".."):
            raise Malformed("the archive holds no data.pkl")
        self._prefix = pickled[0].removesuffix("data.pkl")
        order = f"{self._prefix}byteorder"
        if order in self._members.names and self._members.content(order).tobytes() != b"little":
            raise Malformed("it comes from a big-endian machine; save it again on another one")
        pickle = io.BytesIO(self._members.content(pickled[0]).tobytes())
        self.value, _ = read_pickle(pickle, partial(_refuse_unknown, path))

    def bytes_of(self, storage: Storage) -> Numbers:
        return self._members.content(f"{self._prefix}data/{storage.key}")


class _OldFile:
    """The format before torch 1.6, without checksums."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._bytes = np.frombuffer(content, dtype=np.uint8)
        file = cast(BinaryIO, content)
        magic, version, machine = (read_pickle(file, _refuse_any)[0] for _ in range(3))
        if magic != _MAGIC or version != _VERSION:
            raise Malformed("it does not begin with the number that torch.save writes")
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise Malformed("it comes from a big-endian machine; save it again on another one")
        self.value, outside = read_pickle(file, partial(_refuse_unknown, path))
        keys, _ = read_pickle(file, _refuse_any)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise Malformed("it does not list its storages")
        self._places = self._find(keys, outside, content.tell())

    def bytes_of(self, storage: Storage) -> Numbers:
        if storage.key not in self._places:
            raise Malformed(f"it lacks the storage {storage.key[:80]!r}")
        begin, end = self._places[storage.key]
        return self._bytes[begin:end]

    def _find(self, keys: list[str], outside: list[Persistent], begin: int) -> dict[str, tuple[int, int]]:
        """Return begin and end of each storage in bytes; the pickle gives the size of its numbers."""
        sizes = {storage.key: item_size(storage.type) for storage in map(storage_of, outside)}
        places: dict[str, tuple[int, int]] = {}
        for key in keys:
            if key not in sizes:
                raise Malformed(f"its pickle gives no type for the storage {key[:80]!r}")
            count = int.from_bytes(self._bytes[begin : begin + 8].tobytes(), "little")
            end = begin + 8 + count * sizes[key]
            if end > len(self._bytes):
                raise Malformed(f"it ends within the {count} numbers of storage {key[:80]!r}")
            places[key] = begin + 8, end
            begin = end
        return places


def _refuse_unknown(path: Path, name: str) -> None:
    """Refuse a pickle that imports a name which is not on the list."""
    if not is_known(name):
        raise DataError(
            f"{path} imports {name[:120]!r}, which no checkpoint needs and which may run code; nothing was run: "
            f"if you trust the file, save its parameters alone with "
            f"torch.save(model.state_dict(), FILE)"
        )


def _refuse_any(name: str) -> None:
    raise Malformed(f"it imports {name[:120]!r} where only numbers and text are expected")

"""Files of ``torch.save``, read without torch and without running anything that they contain.

Since torch 1.6 such a file is a zip archive, whose members are stored as they are:

    NAME/data.pkl     a pickle in which each tensor says which numbers it shows
    NAME/data/KEY     the numbers of one storage; several tensors may share it
    NAME/byteorder    "little", of newer versions

Before, it was a row of pickles (a magic number, a version, facts about the machine, the value, the keys of the storages),
then for each storage the count of its numbers, and these. Checkpoints of fairseq and ``pytorch_model.bin`` are such files.

Arrays are views of the mapped file: nothing is read before it is looked at, except once for the checksums, and numbers of
type bfloat16, which are widened.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from nmt.errors import DataError
from nmt.storage.foreign import describe
from nmt.storage.pickles import Malformed, Persistent, read_pickle
from nmt.storage.stored_archive import BEGINNING, StoredArchive, map_file
from nmt.storage.torch_values import BFLOAT16, Numbers, Plain, Storage, is_known, storage_of

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the format before torch 1.6
# Of a damaged archive or pickle; both readers trust their input.
_FAULTS = (ValueError, OverflowError, struct.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError)


def read_torch_file(path: Path, skip: Collection[str] = ()) -> Any:
    """The value that was saved, as a plain tree: dicts, lists (tuples too), numbers, strings, and numpy arrays that cannot
    be written to. ``skip``: keys of the outermost dict whose values are left out (None), such as "last_optimizer_state":
    then nothing of them is read."""
    content = map_file(path)
    zipped = content[:4] == BEGINNING
    if not zipped and content[:1] != b"\x80":
        raise DataError(f"{path} is {describe(path)}, not one that torch.save wrote; name the checkpoint (.pt or .bin)")
    try:
        source: _Source = _Archive(path, content) if zipped else _OldFile(path, content)
        return Plain(_Storages(source).numbers).root(source.value, skip)
    except _FAULTS as error:
        raise DataError(f"{path} is damaged, or not written by torch.save: {error}") from None


class _Source(Protocol):
    """A file of either format."""

    value: Any  # see ``read_pickle``

    def bytes_of(self, storage: Storage) -> Numbers:
        """All bytes of a storage."""


class _Storages:
    """The numbers of each storage, once: tensors that shared them still do."""

    def __init__(self, source: _Source) -> None:
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
    content = content[: len(content) // storage.itemsize * storage.itemsize]
    if storage.type == BFLOAT16:
        widened: Numbers = content.view("<u2").astype(np.uint32) << 16
        return widened.view(np.float32)
    if storage.type == "?":
        return content.astype(np.bool_)  # a byte that is neither 0 nor 1 would confuse numpy
    return content.view(storage.type)


class _Archive:
    """The zip format."""

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
        self.value, _ = read_pickle(pickle, _Names(path).check)

    def bytes_of(self, storage: Storage) -> Numbers:
        return self._members.content(f"{self._prefix}data/{storage.key}")


class _OldFile:
    """The format before torch 1.6, without checksums."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._bytes = np.frombuffer(content, dtype=np.uint8)
        file, names = cast(BinaryIO, content), _Names(path)
        magic, version, machine = (read_pickle(file, names.none)[0] for _ in range(3))
        if magic != _MAGIC or version != _VERSION:
            raise Malformed("it begins with another number than torch.save writes")
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise Malformed("it comes from a big-endian machine; save it again on another one")
        self.value, outside = read_pickle(file, names.check)
        keys, _ = read_pickle(file, names.none)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise Malformed("it does not list its storages")
        self._places = self._find(keys, outside, content.tell())

    def bytes_of(self, storage: Storage) -> Numbers:
        if storage.key not in self._places:
            raise Malformed(f"it lacks the storage {storage.key[:80]!r}")
        begin, end = self._places[storage.key]
        return self._bytes[begin:end]

    def _find(self, keys: list[str], outside: list[Persistent], begin: int) -> dict[str, tuple[int, int]]:
        """Where each storage stands: only the pickle says how large its numbers are."""
        sizes = {storage.key: storage.itemsize for storage in map(storage_of, outside)}
        places: dict[str, tuple[int, int]] = {}
        for key in keys:
            if key not in sizes:
                raise Malformed(f"nothing says of which type the storage {key[:80]!r} is")
            count = int.from_bytes(self._bytes[begin : begin + 8].tobytes(), "little")
            end = begin + 8 + count * sizes[key]
            if end > len(self._bytes):
                raise Malformed(f"it ends before the {count} numbers of storage {key[:80]!r} do")
            places[key] = begin + 8, end
            begin = end
        return places


class _Names:
    """Says no to a pickle that wants what is not on the list."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self, name: str) -> None:
        if not is_known(name):
            raise DataError(
                f"{self._path} asks for {name[:120]!r}, which is none of the few classes that a checkpoint needs, and may "
                f"be there to run code; nothing was run. If you trust the file, save its parameters alone: "
                f"torch.save(model.state_dict(), FILE)"
            )

    def none(self, name: str) -> None:
        raise Malformed(f"it asks for {name[:120]!r} where only numbers and text stand")

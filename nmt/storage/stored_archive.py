"""Read zip archives of uncompressed members, as torch and numpy write them.

Members are views of the mapped file, so nothing becomes larger than the file.
"""

from __future__ import annotations

import mmap
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from nmt.storage.arrays import Numbers, release
from nmt.storage.reading import Malformed

BEGINNING = b"PK\x03\x04"

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, length of the name, length of the extra field
_ENCRYPTED = 0x1


class StoredArchive:
    """The members of an archive by their names."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        """``content``: the whole file. Raises Malformed, or an error of ``zipfile``, for any other file."""
        self._bytes = np.frombuffer(content, dtype=np.uint8)
        with zipfile.ZipFile(path) as archive:
            members, self._end = archive.infolist(), archive.start_dir
        self._members = {member.filename: member for member in members}
        if len(self._members) != len(members):
            raise Malformed("two members of the archive have the same name")
        self._places = self._find(sorted(members, key=lambda member: member.header_offset))

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def content(self, name: str) -> Numbers:
        """Return the bytes of a member, after checking them against its checksum."""
        if name not in self._members:
            raise Malformed(f"the archive lacks the member {name[:80]!r}")
        member, begin = self._members[name], self._places[name]
        stored = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        if not stored or member.flag_bits & _ENCRYPTED:
            raise Malformed(f"member {name[:80]!r} is compressed or encrypted; only plain members are read")
        content = self._bytes[begin : begin + member.file_size]
        if zlib.crc32(content.data) != member.CRC:
            raise Malformed(f"the checksum of member {name[:80]!r} is wrong")
        release(content)
        return content

    def _find(self, members: list[zipfile.ZipInfo]) -> dict[str, int]:
        """Return where the content of each member begins. Members that overlap or exceed the file are refused."""
        places: dict[str, int] = {}
        ends = [*(member.header_offset for member in members[1:]), self._end]
        for member, end in zip(members, ends):
            header = self._bytes[member.header_offset : member.header_offset + _LOCAL_HEADER.size].tobytes()
            if len(header) < _LOCAL_HEADER.size:
                raise Malformed(f"member {member.filename[:80]!r} lies outside of the file")
            signature, *lengths = _LOCAL_HEADER.unpack(header)
            begin = member.header_offset + _LOCAL_HEADER.size + sum(lengths)
            if signature != BEGINNING or not 0 <= begin <= begin + member.compress_size <= end <= len(self._bytes):
                raise Malformed(f"member {member.filename[:80]!r} overlaps others or lies outside of the file")
            places[member.filename] = begin
        return places

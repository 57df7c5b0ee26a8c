"""Token files of fairseq-preprocess, such as ``train.en-de.en.bin`` and ``.idx``.

There are two formats of both files. That of ``--dataset-impl mmap`` begins with "MMIDIDX" and stores ids unchanged. That of
``lazy`` and ``cached`` begins with "TNTIDX" and stores each id plus 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.data.vocabulary import Ids, Ints
from nmt.errors import DataError, MissingInputError

_MAPPED, _PLUS_ONE, _COMPRESSED = b"MMIDIDX\x00\x00", b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")  # magic, version, type, sentences
_OLD_HEADER = struct.Struct("<8sQQQQQ")  # magic, version, type, bytes of a number, sentences, sizes
_TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}


@dataclass(frozen=True)
class FairseqTokens:
    """One language of a split as fairseq stored it, mapped into memory."""

    path: Path  # without .bin and .idx
    tokens: Ids
    offsets: Ints  # [sentences + 1]
    lowest: int  # the stored number of fairseq's id 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sentences(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Return the ids of some sentences in one array, and their lengths; eos only if fairseq stored it."""
        offsets = self.offsets[begin : end + 1]
        return self.tokens[offsets[0] : offsets[-1]].astype(np.int64) - self.lowest, np.diff(offsets)


def read_fairseq_tokens(path: Path) -> FairseqTokens:
    """Map both files; ``path`` is without .bin and .idx."""
    index, content = Path(f"{path}.idx"), Path(f"{path}.bin")
    numbers = _mapped(index)
    head = numbers[: _OLD_HEADER.size].tobytes()
    if head.startswith(_COMPRESSED):
        raise DataError(f"{index} is in fairseq's compressed format; write it again with --dataset-impl mmap")
    if head.startswith(_MAPPED) and len(head) >= _HEADER.size:
        lengths, starts, code = _index(index, numbers)
    elif head.startswith(_PLUS_ONE) and len(head) == _OLD_HEADER.size:
        lengths, starts, code = _old_index(index, numbers)
    else:
        raise DataError(f"{index} is damaged: it does not begin like a fairseq index")
    tokens = _mapped(content)
    type_ = np.dtype(_TYPES[code])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if bool(np.any(lengths < 0)) or bool(np.any(starts != offsets[:-1])) or offsets[-1] * type_.itemsize != len(tokens):
        raise DataError(f"{index} is damaged: its sentences are not contiguous in {content.name}")
    return FairseqTokens(path, tokens.view(type_), offsets, int(head.startswith(_PLUS_ONE)))


def _index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """Return the lengths of the sentences, their starts, and the type of the numbers."""
    _, version, code, count = _HEADER.unpack(numbers[: _HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _HEADER.size + count * 12)
    lengths = numbers[_HEADER.size : _HEADER.size + 4 * count].view("<i4").astype(np.int64)
    places = numbers[_HEADER.size + 4 * count :].view("<i8").astype(np.int64)
    return lengths, places // np.dtype(_TYPES[code]).itemsize, code


def _old_index(path: Path, numbers: Ids) -> tuple[Ints, Ints, int]:
    """The same of the old format, whose sentences are tensors of one dimension."""
    _, version, code, size, count, sizes = _OLD_HEADER.unpack(numbers[: _OLD_HEADER.size].tobytes())
    _check_header(path, version, code, len(numbers), _OLD_HEADER.size + 8 * (2 * (count + 1) + sizes))
    dimensions, starts, lengths = np.split(numbers[_OLD_HEADER.size :].view("<i8"), [count + 1, 2 * (count + 1)])
    if sizes != count or size != np.dtype(_TYPES[code]).itemsize or bool(np.any(np.diff(dimensions) != 1)):
        raise DataError(f"{path} is damaged: it does not describe sentences")
    return lengths.astype(np.int64), starts[:-1].astype(np.int64), code


def _check_header(path: Path, version: int, code: int, size: int, needed: int) -> None:
    if version != 1 or code not in _TYPES:
        raise DataError(f"{path} has version {version} and number type {code}, which nmt does not support")
    if size != needed:
        raise DataError(f"{path} is damaged: {size} bytes instead of {needed}")


def _mapped(path: Path) -> Ids:
    try:
        if path.stat().st_size == 0:
            return np.zeros(0, dtype=np.uint8)
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None

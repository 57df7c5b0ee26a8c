"""model.bin of CTranslate2: the variables of a model one after the other, as views of the file.

    version of the layout, kind of model and its revision, number of variables
    of each: name, shape, type, number of bytes, bytes
    number of aliases, and of each its name and that of the variable that it stands for

Integers are little-endian. Texts have their length before them and a zero at their end. What a number promises is compared
with what is left of the file before anything is made of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.errors import DataError, MissingInputError
from nmt.models.transformer.weights import Array

_VERSION = 6  # written by CTranslate2 3.0 and later
_TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_MOST_AXES = 8

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class ModelFile:
    """Names have dots where the file has slashes. Aliases of one variable are one array."""

    kind: str  # of model, such as "TransformerSpec"
    revision: int
    arrays: dict[str, Numbers]
    settings: dict[str, Any]  # single numbers, of numpy's types
    in_bfloat16: bool  # some of the arrays were, which are in float32 now


def read_model_file(path: Path) -> ModelFile:
    """What was quantised to whole numbers is multiplied out."""
    cursor = _Cursor(path)
    version = cursor.number(4)
    if version != _VERSION:
        raise DataError(
            f"{path} is no model of CTranslate2 in version {_VERSION} of its layout (it begins with {version}); convert the "
            f"original model with CTranslate2 3 or 4"
        )
    kind, revision = cursor.text(), cursor.number(4)
    stored: dict[str, Numbers] = {}
    in_bfloat16 = False
    for _ in range(cursor.number(4)):
        name = cursor.text()
        type_name, array = cursor.array(name)
        if name in stored:
            raise cursor.damage(f"it holds the variable '{name}' twice")
        stored[name] = array
        in_bfloat16 |= type_name == "bfloat16"
    scales = {f"{name}_scale" for name, array in stored.items() if array.dtype.kind == "i"} & stored.keys()
    values = {name: _multiplied_out(name, stored, cursor) for name in stored.keys() - scales}
    for _ in range(cursor.number(4)):
        alias, name = cursor.text(), cursor.text()
        if name in scales:
            continue
        if name not in values or alias in values:
            raise cursor.damage(f"'{alias}' is to be the same as '{name}', which cannot be")
        values[alias] = values[name]
    cursor.require_end()
    dotted = {name.replace("/", "."): value for name, value in values.items()}
    arrays = {name: value for name, value in dotted.items() if value.ndim}
    settings = {name: value[()] for name, value in dotted.items() if not value.ndim}
    return ModelFile(kind, revision, arrays, settings, in_bfloat16)


def _multiplied_out(name: str, stored: dict[str, Numbers], cursor: _Cursor) -> Numbers:
    """Whole numbers with a scale for each row, or one for all, are quotients by it; others are what they are."""
    array, scale = stored[name], stored.get(f"{name}_scale")
    if scale is None or array.dtype.kind != "i":
        return array
    if scale.dtype != np.float32 or scale.shape not in ((), array.shape[:1]) or not bool((scale > 0).all()):
        raise cursor.damage(f"the variable '{name}_scale' holds no scale of '{name}'")
    found: Array = array.astype(np.float32) / scale.reshape(scale.shape + (1,) * (array.ndim - scale.ndim))
    return found


class _Cursor:
    """Reads a file from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        try:
            size = path.stat().st_size
            self._data: Numbers = np.asarray(np.memmap(path, np.uint8, "r")) if size else np.zeros(0, np.uint8)
        except OSError as error:
            raise MissingInputError(f"cannot read {path}: {error.strerror}") from None

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size).tobytes(), "little")

    def text(self) -> str:
        content = self._take(self.number(2)).tobytes()
        try:
            return content.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise self.damage("a name in it is not UTF-8") from None

    def array(self, name: str) -> tuple[str, Numbers]:
        """The type and the numbers of a variable; without axes for a single number."""
        axes = self.number(1)
        if axes > _MOST_AXES:
            raise self.damage(f"the variable '{name}' has {axes} axes")
        shape = tuple(self.number(4) for _ in range(axes))
        number = self.number(1)
        if number >= len(_TYPES):
            raise self.damage(f"the variable '{name}' is of type {number}, which is none")
        kind = np.dtype("uint16" if _TYPES[number] == "bfloat16" else _TYPES[number]).newbyteorder("<")
        size = self.number(4)
        if size != math.prod(shape) * kind.itemsize:
            raise self.damage(f"the variable '{name}' has {size} bytes and the shape {shape} in {_TYPES[number]}")
        numbers = self._take(size).view(kind).reshape(shape)
        if _TYPES[number] == "bfloat16":  # the upper half of a float32
            numbers = (numbers.astype(np.uint32) << 16).view(np.float32)
        return _TYPES[number], numbers

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise self.damage(f"{len(self._data) - self._at:,} bytes are left after its end")

    def damage(self, what: str) -> DataError:
        return DataError(f"{self._path} is damaged: {what}")

    def _take(self, count: int) -> Numbers:
        end = self._at + count
        if end > len(self._data):
            raise self.damage(f"it ends after {len(self._data):,} bytes, in the middle of what should be there")
        taken = self._data[self._at : end]
        self._at = end
        return taken

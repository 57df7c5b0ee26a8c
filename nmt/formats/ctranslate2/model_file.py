"""Read model.bin of CTranslate2: the variables of a model, as views of the mapped file.

    version of the layout, kind of model and its revision, number of variables
    for each variable: name, shape, type, number of bytes, bytes
    number of aliases, and for each its name and the name of its variable

Integers are little-endian. Texts have a length prefix and end in a zero byte. Sizes are compared with the rest of the
file before memory is allocated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.errors import DataError
from nmt.models.transformer.weights import Array
from nmt.storage.arrays import BFLOAT16, Numbers, item_size, numbers_of, widened
from nmt.storage.reading import map_file

_VERSION = 6  # written by CTranslate2 3.0 and later
_TYPES = ("float32", "int8", "int16", "int32", "float16", BFLOAT16)
_MOST_AXES = 8


@dataclass(frozen=True)
class ModelFile:
    """Names have dots where the file has slashes. Aliases of one variable are one array."""

    kind: str  # of model, such as "TransformerSpec"
    revision: int
    arrays: dict[str, Numbers]
    settings: dict[str, Any]  # single numbers, of numpy's types
    in_bfloat16: bool  # whether the file has arrays in bfloat16, which are widened here


def read_model_file(path: Path) -> ModelFile:
    """Read a model file. Quantized arrays are converted to float32."""
    cursor = _Cursor(path)
    version = cursor.number(4)
    if version != _VERSION:
        raise DataError(
            f"{path} is not a CTranslate2 model of file version {_VERSION} (it begins with {version}); convert the "
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
        in_bfloat16 |= type_name == BFLOAT16
    scales = {f"{name}_scale" for name, array in stored.items() if array.dtype.kind == "i"} & stored.keys()
    values = {name: _dequantized(name, stored, cursor) for name in stored.keys() - scales}
    for _ in range(cursor.number(4)):
        alias, name = cursor.text(), cursor.text()
        if name in scales:
            continue
        if name not in values or alias in values:
            raise cursor.damage(f"'{alias}' is an invalid alias of '{name}'")
        values[alias] = values[name]
    cursor.require_end()
    dotted = {name.replace("/", "."): value for name, value in values.items()}
    arrays = {name: value for name, value in dotted.items() if value.ndim}
    settings = {name: value[()] for name, value in dotted.items() if not value.ndim}
    return ModelFile(kind, revision, arrays, settings, in_bfloat16)


def _dequantized(name: str, stored: dict[str, Numbers], cursor: _Cursor) -> Numbers:
    """Divide a quantized array by its scale, one for each row or one for all. Return other arrays unchanged."""
    array, scale = stored[name], stored.get(f"{name}_scale")
    if scale is None or array.dtype.kind != "i":
        return array
    if scale.dtype != np.float32 or scale.shape not in ((), array.shape[:1]) or not bool((scale > 0).all()):
        raise cursor.damage(f"the variable '{name}_scale' is not a valid scale of '{name}'")
    values: Array = array.astype(np.float32) / scale.reshape(scale.shape + (1,) * (array.ndim - scale.ndim))
    return values


class _Cursor:
    """Reads a file from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._data: Numbers = np.frombuffer(map_file(path), np.uint8)

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size).tobytes(), "little")

    def text(self) -> str:
        content = self._take(self.number(2)).tobytes()
        try:
            return content.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError:
            raise self.damage("a name in it is not UTF-8") from None

    def array(self, name: str) -> tuple[str, Numbers]:
        """Return the type and the array of a variable; a single number has no axes."""
        axes = self.number(1)
        if axes > _MOST_AXES:
            raise self.damage(f"the variable '{name}' has {axes} axes")
        shape = tuple(self.number(4) for _ in range(axes))
        number = self.number(1)
        if number >= len(_TYPES):
            raise self.damage(f"the variable '{name}' has the unknown type {number}")
        size, type_name = self.number(4), _TYPES[number]
        if size != math.prod(shape) * item_size(type_name):
            raise self.damage(f"the variable '{name}' has {size} bytes and the shape {shape} in {type_name}")
        return type_name, widened(numbers_of(self._take(size), type_name)).reshape(shape)

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise self.damage(f"{len(self._data) - self._at:,} bytes follow its end")

    def damage(self, what: str) -> DataError:
        return DataError(f"{self._path} is damaged: {what}")

    def _take(self, count: int) -> Numbers:
        end = self._at + count
        if end > len(self._data):
            raise self.damage(f"it ends too early, after {len(self._data):,} bytes")
        content = self._data[self._at : end]
        self._at = end
        return content

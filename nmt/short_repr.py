"""Short reprs of dataclasses that have many options or large tensors."""

from __future__ import annotations

import reprlib
from dataclasses import MISSING, fields
from typing import Any


class ShortRepr:
    """Base of dataclasses whose repr has only the fields that differ from their defaults; of a tensor, type and shape."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = ShortRepr.__repr__  # type: ignore[method-assign]  # ``dataclass`` replaces an inherited one

    def __repr__(self) -> str:
        parts = []
        for field in fields(self):  # type: ignore[arg-type]  # a dataclass
            value = getattr(self, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if type(value) is not type(default) or value != default:  # tensors have no default, and are not compared
                parts.append(f"{field.name}={_SHORT.repr(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"


class _Short(reprlib.Repr):
    def repr_Tensor(self, tensor: Any, level: int) -> str:
        return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"

    repr_ndarray = repr_Tensor


_SHORT = _Short()
_SHORT.maxstring, _SHORT.maxother = 120, 1000  # characters of a text; of another object, such as nested options

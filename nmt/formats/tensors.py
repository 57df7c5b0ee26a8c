"""The tensors of a file by name, with checks of types and shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nmt.errors import DataError, shown
from nmt.models.transformer.weights import Array, LinearWeights
from nmt.storage.arrays import HALVES, widened

_SHOWN = 3


class Tensors:
    """Tensors that a reader takes one by one. A tensor left over means that the model has an unknown part."""

    def __init__(self, tensors: Mapping[str, Any], origin: str) -> None:
        """``origin``: the file, for messages."""
        self._tensors = tensors
        self._read = set[str]()
        self.origin = origin

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int | None) -> Array:
        """Return a tensor of this shape; None allows any size along an axis."""
        return widened(self.unwidened(name, *shape))

    def unwidened(self, name: str, *shape: int | None) -> Array:
        """Return a tensor as it is stored: bfloat16 needs ``widened``."""
        if name not in self._tensors:
            raise DataError(f"{self.origin} has no tensor '{name}'; it is damaged or holds another kind of model")
        self._read.add(name)
        array = np.asarray(self._tensors[name])
        if array.dtype != HALVES and not np.issubdtype(array.dtype, np.floating):
            raise DataError(f"{self.origin}: tensor '{name}' holds {array.dtype}, not floating-point numbers")
        fits = [expected in (None, size) and size > 0 for expected, size in zip(shape, array.shape)]
        if len(shape) != array.ndim or not all(fits):
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            raise DataError(f"{self.origin}: tensor '{name}' has the shape {array.shape} instead of ({expected})")
        return array

    def optional(self, name: str, *shape: int | None) -> Array | None:
        return self.take(name, *shape) if name in self._tensors else None

    def linear(self, name: str, outputs: int | None, inputs: int) -> LinearWeights:
        """Return a linear map, with its bias if the file has one."""
        matrix = self.take(f"{name}.weight", outputs, inputs)
        return LinearWeights(matrix, self.optional(f"{name}.bias", len(matrix)))

    def numbers(self, pattern: str) -> Iterator[str]:
        """Yield the group of a pattern from each name that starts with the pattern."""
        return (match[1] for match in map(re.compile(pattern).match, self._tensors) if match)

    def require_all_read(self) -> None:
        left = sorted(name for name in self._tensors if name not in self._read)
        if left:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            raise DataError(f"{self.origin} has tensors that nmt does not support: {', '.join(left[:_SHOWN])}{more}")


def arrays_by_name(tree: Mapping[Any, Any], origin: str) -> dict[str, Array]:
    """Return the tensors of a file, after a check that it holds only named tensors."""
    for name, value in tree.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise DataError(f"{origin} holds {shown(name)}, which is not a named tensor")
    return dict(tree)

"""The tensors of a file by their names, of which a reader takes one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nmt.errors import DataError
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import Array, Linear

_SHOWN = 3
_ALIKE = 1e-3  # between sinusoids in float32 and in float64, some thousand positions away


class Tensors:
    """What is left over at the end was not understood: then the model was not."""

    def __init__(self, tensors: Mapping[str, Any], origin: str) -> None:
        """``origin``: the file, for messages."""
        self._tensors = tensors
        self._read = set[str]()
        self.origin = origin

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, *shape: int | None) -> Array:
        """A tensor of this shape; None: of any size along that axis."""
        if name not in self._tensors:
            raise DataError(f"{self.origin} has no tensor '{name}': it is damaged, or a model of another kind")
        self._read.add(name)
        array = np.asarray(self._tensors[name])
        if not np.issubdtype(array.dtype, np.floating):
            raise DataError(f"{self.origin}: tensor '{name}' holds {array.dtype}, not floating-point numbers")
        fits = [wanted in (None, size) and size > 0 for wanted, size in zip(shape, array.shape)]
        if len(shape) != array.ndim or not all(fits):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise DataError(f"{self.origin}: tensor '{name}' has the shape {array.shape}, and should have ({wanted})")
        return array

    def optional(self, name: str, *shape: int | None) -> Array | None:
        return self.take(name, *shape) if name in self._tensors else None

    def linear(self, name: str, outputs: int | None, inputs: int) -> Linear:
        """With a bias, if there is one."""
        matrix = self.take(f"{name}.weight", outputs, inputs)
        return Linear(matrix, self.optional(f"{name}.bias", len(matrix)))

    def numbers(self, pattern: str) -> Iterator[str]:
        """What the group of a pattern is in the names that begin so."""
        return (match[1] for match in map(re.compile(pattern).match, self._tensors) if match)

    def require_all_read(self) -> None:
        left = sorted(name for name in self._tensors if name not in self._read)
        if left:
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            raise DataError(
                f"{self.origin} has tensors that no model of ours has a place for: {', '.join(left[:_SHOWN])}{more}"
            )


def as_formula_if_alike(table: Array | None, formula: Sinusoids) -> Array | Sinusoids:
    """Positions as they are stored; by the formula, if that is what they follow (then they have no end) or none are."""
    if table is None or np.allclose(table, formula.table(len(table)), atol=_ALIKE):
        return formula
    return table

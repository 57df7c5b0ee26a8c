"""Trees of tensors: the encoder output, and the state of a decoder between two steps.

A tree is any nesting of dataclasses, tuples, lists and dicts with tensors as leaves (None for an absent one). Every tensor
has one row per sentence or per hypothesis on axis 0, so all models share one beam search. A tree with another layout
overrides ``rows``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

Tree = TypeVar("Tree")
Self = TypeVar("Self", bound="RowTree")


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Return the tree with ``function`` applied to each tensor; other leaves are unchanged."""

    def change(part: Any) -> Any:
        if isinstance(part, Tensor):
            return function(part)
        return part.map(function) if isinstance(part, RowTree) else with_parts(change, part)

    return change(tree)  # type: ignore[no-any-return]


def tensors(tree: Any) -> Iterator[Tensor]:
    """Yield every tensor of a tree, in a fixed order."""
    leaves: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        leaves.append(tensor)
        return tensor

    map_tensors(collect, tree)
    return iter(leaves)


def with_parts(change: Callable[[Any], Any], node: Any) -> Any:
    """Return ``node`` with ``change`` applied to each of its parts; a leaf is unchanged."""
    if isinstance(node, (tuple, list)):
        return type(node)(map(change, node))
    if isinstance(node, dict):
        return {key: change(part) for key, part in node.items()}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        names = [field.name for field in dataclasses.fields(node)]
        return dataclasses.replace(node, **{name: change(getattr(node, name)) for name in names})
    return node


@dataclasses.dataclass
class RowTree:
    """A dataclass whose every tensor has one row per sentence or per hypothesis, on axis 0."""

    def map(self: Self, function: Callable[[Tensor], Tensor]) -> Self:
        return with_parts(lambda part: map_tensors(function, part), self)  # type: ignore[no-any-return]

    def rows(self: Self, index: Tensor) -> Self:
        """Return the rows ``index``, in that order; repeats are allowed."""

        def selected(part: Any) -> Any:
            if isinstance(part, Tensor):
                return part.index_select(0, index)
            return part.rows(index) if isinstance(part, RowTree) else with_parts(selected, part)

        return with_parts(selected, self)  # type: ignore[no-any-return]

    def clone(self: Self) -> Self:
        """Return a deep copy: a step may write into the state that it consumes."""
        return self.map(torch.clone)

"""Trees of tensors: what an encoder leaves behind and what a decoder carries from step to step.

Any nesting of dataclasses, tuples, lists and dicts with tensors as leaves (and None where there is none). Every tensor
has one row per sentence or per hypothesis on axis 0; that single rule lets every model share one beam search. A tree that
keeps its rows in another way says so by its own ``rows``.
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
    """The same tree with ``function`` applied to each tensor; leaves that are not tensors stay as they are."""
    return _map(function, lambda part: part.map(function), tree)  # type: ignore[no-any-return]


def tensors(tree: Any) -> Iterator[Tensor]:
    """Every tensor of a tree, in a fixed order."""
    found: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(collect, tree)
    return iter(found)


def _map(of_tensor: Callable[[Tensor], Tensor], of_rows: Callable[[RowTree], RowTree], node: Any) -> Any:
    """``of_rows``: what becomes of a ``RowTree`` inside."""
    if isinstance(node, Tensor):
        return of_tensor(node)
    if isinstance(node, RowTree):
        return of_rows(node)
    if isinstance(node, (tuple, list)):
        return type(node)(_map(of_tensor, of_rows, child) for child in node)
    if isinstance(node, dict):
        return {key: _map(of_tensor, of_rows, child) for key, child in node.items()}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return _with_children(of_tensor, of_rows, node)
    return node


def _with_children(of_tensor: Callable[[Tensor], Tensor], of_rows: Callable[[RowTree], RowTree], node: Any) -> Any:
    names = [field.name for field in dataclasses.fields(node)]
    return dataclasses.replace(node, **{name: _map(of_tensor, of_rows, getattr(node, name)) for name in names})


@dataclasses.dataclass
class RowTree:
    """A dataclass whose every tensor has one row per sentence or per hypothesis, on axis 0."""

    def map(self: Self, function: Callable[[Tensor], Tensor]) -> Self:
        return _with_children(function, lambda tree: tree.map(function), self)  # type: ignore[no-any-return]

    def rows(self: Self, index: Tensor) -> Self:
        """Keep the rows ``index``, in that order; repeats are allowed."""
        selected = _with_children(lambda tensor: tensor.index_select(0, index), lambda tree: tree.rows(index), self)
        return selected  # type: ignore[no-any-return]

    def clone(self: Self) -> Self:
        """A deep copy (a step may write into the state that it consumes)."""
        return self.map(torch.clone)

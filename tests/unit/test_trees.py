"""Trees of tensors: every tensor follows the rows, whatever holds it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.trees import RowTree, map_tensors, tensors


@dataclass
class Inner(RowTree):
    cache: Tensor
    label: str = "kept"


@dataclass
class Outer(RowTree):
    inner: tuple[Inner, ...]
    table: dict[str, Tensor | None]
    listed: list[Tensor]


def tree() -> Outer:
    base = torch.arange(6).view(3, 2)
    return Outer((Inner(base), Inner(base + 10)), {"a": base + 20, "none": None}, [base + 30])


def test_rows_reach_every_tensor_in_every_container() -> None:
    index = torch.tensor([2, 0, 0])
    before, after = list(tensors(tree())), list(tensors(tree().rows(index)))
    assert len(before) == 4 and all(torch.equal(new, old[index]) for old, new in zip(before, after, strict=True))


def test_what_is_no_tensor_stays() -> None:
    kept = tree().rows(torch.tensor([1]))
    assert kept.inner[0].label == "kept" and kept.table["none"] is None


def test_a_clone_shares_no_memory() -> None:
    original = tree()
    copy = original.clone()
    copy.inner[0].cache.zero_()
    assert original.inner[0].cache.sum() == 15 and type(copy) is Outer


def test_mapping_keeps_the_structure() -> None:
    doubled = map_tensors(lambda tensor: tensor * 2, {"a": (torch.ones(1), [torch.ones(2)])})
    assert torch.equal(doubled["a"][0], torch.tensor([2.0])) and torch.equal(doubled["a"][1][0], torch.full((2,), 2.0))

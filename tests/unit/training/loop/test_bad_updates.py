"""The file that an update with a gradient that is not finite leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import EOS
from nmt.distributed.world import World
from nmt.reporting.figures import UpdateReport
from nmt.training.loop.updater import MOST, BadUpdates, without_finite_gradient
from tests.tiny_models import tiny_pair

FIGURES = UpdateReport(float("nan"), 1.0, 2.0, 2, 2, float("inf"), 0.1, 0.0)


def batch(*numbers: int) -> Batch:
    return collate([np.array([4, 5, EOS]), np.array([6, EOS])], [np.array([5, EOS]), np.array([7, 8, 9, EOS])], numbers)


def test_it_holds_the_sentences_of_every_batch_as_text_and_as_ids(tmp_path: Path) -> None:
    pair = tiny_pair()
    path = BadUpdates(tmp_path, pair).record(7, 2, [batch(30, 40), batch(1, 2)], FIGURES, ["output.weight"])
    assert path is not None
    stored = json.loads(path.read_text(encoding="utf-8"))
    assert [len(part) for part in stored["batches"]] == [2, 2]
    assert stored["batches"][0][1] == {
        "sentence": 40,
        "source": pair.source.decode([6]),
        "target": pair.target.decode([7, 8, 9]),
        "source_ids": [6, EOS],
        "target_ids": [7, 8, 9, EOS],
    }
    del stored["batches"]
    assert stored == {
        "update": 7, "epoch": 2, "loss": "nan", "grad_norm": "inf", "lr": 0.1, "parameters": ["output.weight"]
    }  # fmt: skip


def test_data_that_differ_have_a_file_each_up_to_a_limit(tmp_path: Path) -> None:
    bad = BadUpdates(tmp_path, tiny_pair())
    for first in range(MOST):
        assert bad.record(7, 1, [batch(first, 100)], replace(FIGURES), []) is not None
    assert bad.record(7, 1, [batch(MOST, 100)], FIGURES, []) is None
    assert len(list((tmp_path / "bad-updates").iterdir())) == MOST


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "bad-updates").touch()
    assert BadUpdates(tmp_path, tiny_pair()).record(7, 1, [batch(1, 2)], FIGURES, []) is None
    assert "training continues" in caplog.text


def test_parameters_without_a_finite_gradient_are_named() -> None:
    module = nn.ModuleDict({name: nn.Linear(2, 1) for name in "abc"})
    for name, value in (("a", 1.0), ("b", float("nan"))):
        module[name].weight.grad = torch.tensor([[value, 0.0]])
    assert without_finite_gradient(module.named_parameters(), World()) == ["b.weight"]


class Half(World):
    """One of two processes that divide each parameter; ``others`` is what the other one has told."""

    size = 2

    def __init__(self, rank: int, *others: list[str]) -> None:
        self.rank = rank
        self._others = others

    def local_part(self, tensor: Tensor) -> Tensor:
        return tensor.chunk(2)[self.rank]

    def gather(self, value: Any) -> list[Any]:
        return [*self._others, value] if self.rank else [value, *self._others]


def test_each_process_names_what_is_not_finite_in_the_part_of_any() -> None:
    module = nn.ModuleDict({name: nn.Linear(1, 4, bias=False) for name in "abc"})
    for name, row in (("a", 3), ("b", 0), ("c", 2)):
        module[name].weight.grad = torch.zeros(4, 1).index_fill(0, torch.tensor(row), float("nan"))
    own = [without_finite_gradient(module.named_parameters(), Half(rank)) for rank in range(2)]
    assert own == [["b.weight"], ["a.weight", "c.weight"]]
    for rank in range(2):
        found = without_finite_gradient(module.named_parameters(), Half(rank, own[1 - rank]))
        assert found == ["a.weight", "b.weight", "c.weight"]

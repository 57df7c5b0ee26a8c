"""Additive scores inside the heads against the formula."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.models.transformer import attention_kinds
from nmt.models.transformer.attention_kinds import Additive
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.mask import Mask

SIZES = HeadSizes(d_model=6, num_heads=2, d_k=3, d_v=4)


@pytest.fixture(params=[1, 40, 2**20])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(attention_kinds, "CHUNK", request.param)
    size: int = request.param
    return size


@pytest.mark.usefixtures("chunk")
def test_scores_follow_the_formula() -> None:
    attend = Additive(SIZES, 0.0)
    queries, keys = torch.randn(2, 2, 5, 3), torch.randn(2, 2, 4, 3)
    found = attend.scores(queries, keys, Mask(None)).detach()
    for b, h, t, s in ((0, 0, 0, 0), (1, 1, 4, 3), (0, 1, 2, 1), (1, 0, 3, 2)):
        hidden = [math.tanh(float(queries[b, h, t, i] + keys[b, h, s, i])) for i in range(3)]
        expected = sum(attend.vector[h, i].item() * hidden[i] for i in range(3))
        assert float(found[b, h, t, s]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.usefixtures("chunk")
def test_gradients_are_those_of_finite_differences() -> None:
    attend = Additive(SIZES, 0.0).double()
    queries = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True)

    def scores(queries: torch.Tensor, keys: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return attend.scores(queries, keys, Mask(None))

    assert torch.autograd.gradcheck(scores, (queries, keys, attend.vector))


def test_weights_are_a_distribution_over_what_may_be_seen() -> None:
    record: list[torch.Tensor] = []
    bias = torch.tensor([0.0, 0.0, -math.inf])
    queries, keys, values = torch.randn(1, 2, 2, 3), torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 4)
    found = Additive(SIZES, 0.0)(queries, keys, values, Mask(bias), record)
    torch.testing.assert_close(record[0].sum(-1), torch.ones(1, 2, 2))
    assert not record[0][..., 2].any()
    torch.testing.assert_close(found, record[0] @ values)

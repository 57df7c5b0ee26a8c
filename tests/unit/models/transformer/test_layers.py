"""The small layers: feed-forward, residual connections, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.layers.embeddings import Borrowed, Embedding
from nmt.models.transformer.layers import FeedForward, GatedFeedForward, PostNorm, PreNorm


def double(x: Tensor) -> Tensor:
    return 2 * x


def test_feed_forward_is_equation_2() -> None:
    network = FeedForward(4, 7)
    nn.init.normal_(network.inner.bias)
    x = torch.randn(3, 4)
    inner = torch.clamp(x @ network.inner.weight.t() + network.inner.bias, min=0)
    torch.testing.assert_close(network(x), inner @ network.outer.weight.t() + network.outer.bias)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


GATES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[float], float]]] = {
    "glu": (torch.sigmoid, sigmoid),
    "geglu": (F.gelu, lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),  # x Phi(x)
    "swiglu": (F.silu, lambda x: x * sigmoid(x)),
}


@pytest.mark.parametrize("kind", GATES)
def test_a_gated_network_multiplies_two_projections(kind: str) -> None:
    activation, formula = GATES[kind]
    network, x = GatedFeedForward(activation, 3, 2), torch.randn(3)
    w, v = network.inner.weight.detach().split(2)
    inner = [formula(float(w[i] @ x)) * float(v[i] @ x) for i in range(2)]
    torch.testing.assert_close(network(x), network.outer.weight @ torch.tensor(inner))


def test_two_thirds_of_the_inner_width_have_the_matrices_of_the_plain_network() -> None:
    gated, plain = GatedFeedForward(F.silu, 8, 16), FeedForward(8, 24)
    matrices = sum(parameter.numel() for parameter in plain.parameters() if parameter.dim() == 2)
    assert sum(parameter.numel() for parameter in gated.parameters()) == matrices


def test_post_norm_normalises_the_sum() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(PostNorm(nn.LayerNorm(4), 0.0)(x, double), F.layer_norm(x + 2 * x, (4,)))


def test_pre_norm_normalises_the_input_of_the_sublayer() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(PreNorm(nn.LayerNorm(4), 0.0)(x, double), x + 2 * F.layer_norm(x, (4,)))


def test_dropout_hits_the_sublayer_and_not_the_residual() -> None:
    torch.manual_seed(1)
    x = torch.randn(100, 4)
    change = PreNorm(nn.LayerNorm(4), 0.5).train()(x, torch.ones_like) - x
    assert change.round(decimals=3).unique().tolist() == [0.0, 2.0]


def test_an_embedding_is_scaled() -> None:
    embedding = Embedding(5, 4, scale=3.0)
    torch.testing.assert_close(embedding(torch.tensor([2])), 3 * embedding.weight[[2]])


def test_a_borrowed_module_computes_like_its_owner_and_owns_nothing() -> None:
    embedding = Embedding(5, 4)
    borrowed = Borrowed(embedding)
    assert torch.equal(borrowed(torch.tensor([1])), embedding(torch.tensor([1])))
    assert not list(borrowed.parameters())

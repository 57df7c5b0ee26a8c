"""The small layers: feed-forward, residual connections, embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.modules.embeddings import Borrowed, Embedding
from nmt.modules.feed_forward import FeedForward
from nmt.modules.residual import PostNorm, PreNorm


def double(x: Tensor) -> Tensor:
    return 2 * x


def test_feed_forward_is_equation_2() -> None:
    network = FeedForward(4, 7)
    nn.init.normal_(network.inner.bias)
    x = torch.randn(3, 4)
    inner = torch.clamp(x @ network.inner.weight.t() + network.inner.bias, min=0)
    torch.testing.assert_close(network(x), inner @ network.outer.weight.t() + network.outer.bias)


def test_post_norm_normalises_the_sum() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(PostNorm(4, 0.0)(x, double), F.layer_norm(x + 2 * x, (4,)))


def test_pre_norm_normalises_the_input_of_the_sublayer() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(PreNorm(4, 0.0)(x, double), x + 2 * F.layer_norm(x, (4,)))


def test_dropout_hits_the_sublayer_and_not_the_residual() -> None:
    torch.manual_seed(1)
    x = torch.randn(100, 4)
    change = PreNorm(4, 0.5).train()(x, torch.ones_like) - x
    assert change.round(decimals=3).unique().tolist() == [0.0, 2.0]


def test_an_embedding_is_scaled() -> None:
    embedding = Embedding(5, 4, scale=3.0)
    torch.testing.assert_close(embedding(torch.tensor([2])), 3 * embedding.weight[[2]])


def test_a_borrowed_module_computes_like_its_owner_and_owns_nothing() -> None:
    embedding = Embedding(5, 4)
    borrowed = Borrowed(embedding)
    assert torch.equal(borrowed(torch.tensor([1])), embedding(torch.tensor([1])))
    assert not list(borrowed.parameters())
    assert borrowed.module is embedding

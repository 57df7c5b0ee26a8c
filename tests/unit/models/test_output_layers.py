"""Output layers: one matrix, its own or an embedding's."""

from __future__ import annotations

import pytest
import torch

from nmt.interface import OutputLayer
from nmt.layers.embeddings import Embedding
from nmt.models.output_layers import LinearOutput, TiedOutput

LAYERS = {
    "linear": LinearOutput(torch.randn(9, 4)),
    "linear with bias": LinearOutput(torch.randn(9, 4), torch.randn(9)),
    "tied": TiedOutput(Embedding(9, 4)),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_logits_are_the_linear_map_that_the_layer_reports(layer: OutputLayer) -> None:
    hidden, linear = torch.randn(3, 4), layer.linear()
    assert linear is not None
    expected = hidden @ linear[0].t() + (0 if linear[1] is None else linear[1])
    torch.testing.assert_close(layer.logits(hidden), expected)


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_restricted_layer_gives_the_columns_asked_for(layer: OutputLayer) -> None:
    hidden, vocabulary = torch.randn(3, 4), torch.tensor([8, 3, 5])
    torch.testing.assert_close(layer.restrict(vocabulary).logits(hidden), layer.logits(hidden)[:, vocabulary])


def test_a_tied_layer_owns_nothing_and_trains_its_embedding() -> None:
    embedding = Embedding(9, 4)
    layer = TiedOutput(embedding)
    assert not layer.state_dict()
    layer.logits(torch.ones(1, 4)).sum().backward()
    assert embedding.weight.grad is not None

"""Layers that run again in the backward pass: the same numbers from less memory."""

from __future__ import annotations

import copy

import torch
from live_bytes import LiveBytes
from torch import Tensor, nn

from nmt.interface import VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.stack import Stack, recompute_layers, stacked_layers
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.testing.subjects import toy_batch

LENGTHS = [16] * 8


def model() -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(6, 6, d_model=32, d_ff=64, num_heads=4, dropout=0.3, attention_dropout=0.2)
    return Transformer(config, VocabularySizes(23, 23, shared=True)).train()


def gradients(model: Transformer) -> dict[str, Tensor | None]:
    torch.manual_seed(2)
    model(toy_batch(model, LENGTHS, LENGTHS)).hidden.square().sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_gradients_under_dropout_are_the_same_bit_for_bit() -> None:
    kept, again = model(), model()
    assert recompute_layers(again) == 12
    expected = gradients(kept)
    after = torch.random.get_rng_state()
    for name, gradient in gradients(again).items():
        wanted = expected[name]
        assert wanted is not None and gradient is not None and torch.equal(gradient, wanted), name
    assert torch.equal(torch.random.get_rng_state(), after)  # whatever is drawn next is the same too


def test_most_of_the_memory_is_saved() -> None:
    peaks = []
    for recompute in (False, True):
        subject = model()
        if recompute:
            recompute_layers(subject)
        with LiveBytes() as live:
            gradients(subject)
        peaks.append(live.peak)
    assert peaks[1] < 0.5 * peaks[0]


def test_a_copy_runs_its_own_layers_again() -> None:
    """Counting operations copies what is trained."""
    original = model()
    recompute_layers(original)
    twin = copy.deepcopy(original)
    gradients(twin)
    assert all(parameter.grad is None for parameter in original.parameters())


def test_a_stack_inside_a_layer_belongs_to_the_layer() -> None:
    inner = nn.Sequential(Stack([Dropout(0.1)]))
    outer = nn.ModuleList([nn.Sequential(Stack([inner, nn.Identity()])), nn.Linear(2, 2)])
    assert list(stacked_layers(outer)) == list(outer[0][0])
    assert recompute_layers(nn.Linear(2, 2)) == 0

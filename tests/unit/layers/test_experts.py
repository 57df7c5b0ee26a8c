"""The mixture of experts against its equations, one token and one expert at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.layers.experts import Experts, NoisyTopK, squared_variation


def gating(k: int, experts: int = 5) -> NoisyTopK:
    torch.manual_seed(1)
    gate = NoisyTopK(4, experts, k)
    with torch.no_grad():
        gate.gate.normal_()
        gate.noise.normal_()
    return gate


def one_expert(experts: Experts, number: int, x: Tensor) -> Tensor:
    hidden = torch.relu(x @ experts.inner[number] + experts.inner_bias[number, 0])
    return hidden @ experts.outer[number] + experts.outer_bias[number, 0]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_output_is_the_gated_sum_over_the_chosen_experts(k: int) -> None:
    gate, experts, x = gating(k).eval(), Experts(4, 6, 5), torch.randn(7, 4)
    routing = gate(x)
    found = experts(x, routing)
    for token in range(7):
        logits = gate.gate @ x[token]
        kept = logits.topk(k).indices
        weights = logits[kept].softmax(0)
        expected = sum(weight * one_expert(experts, int(i), x[token]) for weight, i in zip(weights, kept))
        torch.testing.assert_close(found[token], expected)
        assert set(routing.gates[token].nonzero().flatten().tolist()) == set(kept.tolist())


def test_all_experts_without_noise_are_a_softmax_mixture() -> None:
    gate, experts, x = gating(5).eval(), Experts(4, 6, 5), torch.randn(3, 4)
    mixture = (x @ gate.gate.t()).softmax(1)
    answers = torch.stack([one_expert(experts, i, x) for i in range(5)], 1)
    torch.testing.assert_close(experts(x, gate(x)), (mixture[:, :, None] * answers).sum(1))


def test_the_gate_computes_in_32_bits_under_autocast() -> None:
    gate, x = gating(2, experts=32).eval(), torch.randn(200, 4)
    expected = gate(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gate(x)
    assert found.gates.dtype == torch.float32 and torch.equal(found.gates, expected.gates)


def test_noise_acts_in_training_only() -> None:
    gate, x = gating(2), torch.randn(50, 4)
    assert not torch.equal(gate(x).experts, gate(x).experts)
    gate.eval()
    assert torch.equal(gate(x).experts, gate(x).experts)


def test_before_training_all_experts_are_equally_likely() -> None:
    torch.manual_seed(1)
    gate, x = NoisyTopK(4, 5, 2), torch.randn(5000, 4)
    share = gate(x).gates.sum(0) / 5000
    assert (share - 0.2).abs().max() < 0.02


def test_load_is_the_probability_of_being_chosen_under_fresh_noise() -> None:
    """Equation 9 for one expert: its own noise is drawn again and again, that of the others stays."""
    torch.manual_seed(2)
    gate, x = gating(2), torch.randn(1, 4)
    clean, spread = gate.gate @ x[0], torch.nn.functional.softplus(gate.noise @ x[0])
    torch.manual_seed(7)
    noise = torch.randn(1, 5)[0]
    torch.manual_seed(7)
    load = gate(x).load[0]
    for expert in range(5):
        scores = clean + noise * spread
        others = torch.cat([scores[:expert], scores[expert + 1 :]])
        threshold = others.topk(2).values[1]
        fresh = clean[expert] + torch.randn(20_000) * spread[expert]
        assert load[expert].item() == pytest.approx(float((fresh > threshold).float().mean()), abs=0.02)


@pytest.mark.parametrize("noise", [-20.0, -60.0, -1000.0])
def test_noise_that_is_next_to_nothing_has_a_finite_gradient(noise: float) -> None:
    gate, x = NoisyTopK(2, 4, 2), torch.ones(3, 2)
    with torch.no_grad():
        gate.gate.copy_(torch.randn(4, 2))
        gate.noise.fill_(noise / 2)
    gate(x).load.sum().backward()
    assert gate.noise.grad is not None and gate.gate.grad is not None
    assert bool(gate.noise.grad.isfinite().all()) and bool(gate.gate.grad.isfinite().all())


def test_every_expert_gets_a_gradient_if_only_of_zero() -> None:
    gate, experts, x = gating(1, experts=50), Experts(4, 6, 50), torch.randn(3, 4)
    experts(x, gate(x)).sum().backward()
    assert all(parameter.grad is not None for parameter in [*experts.parameters(), gate.gate])
    used = (experts.inner.grad.flatten(1).abs().sum(1) > 0).sum()  # type: ignore[union-attr]
    assert 0 < int(used) <= 3


def test_no_token_is_dropped_however_busy_an_expert_is() -> None:
    gate, experts, x = gating(1).eval(), Experts(4, 6, 5), torch.randn(64, 4)
    with torch.no_grad():
        gate.gate.zero_()
        gate.gate[3] = 10.0
    x = x.abs()
    torch.testing.assert_close(experts(x, gate(x)), torch.stack([one_expert(experts, 3, row) for row in x]))


def test_nothing_in_nothing_out() -> None:
    gate, experts = gating(2), Experts(4, 6, 5)
    assert experts(torch.zeros(0, 4), gate(torch.zeros(0, 4))).shape == (0, 4)


def test_squared_variation() -> None:
    assert float(squared_variation(torch.tensor([3.0, 3.0, 3.0]))) == 0.0
    assert float(squared_variation(torch.tensor([0.0, 4.0]))) == pytest.approx(1.0)
    values = torch.rand(2, 5)
    expected = [row.var(unbiased=False) / row.mean() ** 2 for row in values]
    torch.testing.assert_close(squared_variation(values), torch.stack(expected))
    assert math.isfinite(float(squared_variation(torch.zeros(3))))

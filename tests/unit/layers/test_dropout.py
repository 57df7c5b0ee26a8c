"""Dropout by random bytes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.layers.dropout import Dropout, LayerDropout, random_bytes


def drop(x: Tensor, p: float, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    dropped: Tensor = Dropout(p).train()(x)
    return dropped


@pytest.mark.parametrize("p", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_the_share_of_dropped_elements_is_p(p: float) -> None:
    # 400 draws of the threshold: alone, a byte would be off by up to 1/512.
    dropped = sum((drop(torch.ones(5000), p, seed) == 0).float().mean().item() for seed in range(400)) / 400
    assert dropped == pytest.approx(p, abs=4 * (p * (1 - p) / 2e6) ** 0.5 + 4 / 512 / 20)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_survivors_are_scaled_so_that_the_mean_stays(p: float) -> None:
    assert drop(torch.ones(2_000_000), p).mean().item() == pytest.approx(1.0, abs=4e-3)


def test_survivors_share_one_scale() -> None:
    assert len(drop(torch.ones(10_000), 0.3).unique()) == 2


def test_the_threshold_is_one_of_the_two_neighbours() -> None:
    assert {random_bytes(8, 0.1)[1] for _ in range(200)} == {25, 26}


def test_neighbouring_elements_fall_independently() -> None:
    kept = (drop(torch.ones(800_000), 0.5) != 0).float().view(-1, 8)
    correlations = torch.corrcoef(kept.t()) - torch.eye(8)
    assert correlations.abs().max().item() < 0.02


def test_the_seed_of_torch_reproduces_it() -> None:
    x = torch.randn(1000)
    assert torch.equal(drop(x, 0.3, seed=5), drop(x, 0.3, seed=5))
    assert not torch.equal(drop(x, 0.3, seed=5), drop(x, 0.3, seed=6))


def test_it_is_the_identity_in_eval_mode_and_without_probability() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_gradients_pass_where_elements_survived_and_nowhere_else() -> None:
    x = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    y = drop(x, 0.3)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), y.detach())


def test_adding_to_a_residual_equals_dropping_and_adding() -> None:
    x, residual = torch.randn(64, 8), torch.randn(64, 8)
    torch.manual_seed(3)
    added = Dropout(0.3).train().add(residual, x)
    torch.testing.assert_close(added, residual + drop(x, 0.3, seed=3))


def test_gradients_of_adding_to_a_residual() -> None:
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)

    def add(residual: Tensor, x: Tensor) -> Tensor:
        torch.manual_seed(4)
        return Dropout(0.3).train().add(residual, x)

    assert torch.autograd.gradcheck(add, (residual, x))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_any_number_of_elements_works(size: int) -> None:
    assert drop(torch.ones(size), 0.5).shape == (size,)


def test_a_transposed_tensor_keeps_its_shape_and_values() -> None:
    x = torch.randn(7, 3).t()
    dropped = drop(x, 0.3)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], x[kept] * (dropped[kept] / x[kept])[0])


def test_layers_are_skipped_whole_with_their_probability_and_only_in_training() -> None:
    dropout, x, of_layer = LayerDropout(0.25), torch.zeros(3), torch.ones(3, requires_grad=True)
    results = [dropout(x, of_layer) for _ in range(4000)]
    assert {tuple(result.tolist()) for result in results} == {(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)}
    assert 850 < sum(result[0].item() == 0.0 for result in results) < 1150
    skipped = next(result for result in results if result[0] == 0.0)
    assert torch.equal(torch.autograd.grad(skipped.sum(), of_layer)[0], x)
    dropout.eval()
    assert dropout(x, of_layer) is of_layer

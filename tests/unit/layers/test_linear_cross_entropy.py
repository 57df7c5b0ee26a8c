"""The chunked loss of a linear layer against the plain one and against torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.layers import linear_cross_entropy as module
from nmt.layers.linear_cross_entropy import linear_agreement, linear_cross_entropy, smoothed_cross_entropy

M, D, V = 37, 5, 11
SMOOTHING = [0.0, 0.1, 0.5]


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 rows a chunk, so that 37 rows take three and the last is short."""
    monkeypatch.setitem(module.CHUNK_ELEMENTS, "cpu", 16 * V)


def inputs(bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    targets = torch.randint(V, (M,), generator=generator)
    return random(M, D), random(V, D), random(V) if bias else None, targets


def gradients(loss: Tensor, *leaves: Tensor | None) -> list[Tensor]:
    return list(torch.autograd.grad(loss * 0.7, [leaf for leaf in leaves if leaf is not None]))


def test_smoothing_follows_the_explicit_formula() -> None:
    logits, targets, epsilon = torch.randn(M, V, dtype=torch.float64), torch.randint(V, (M,)), 0.1
    expected = 0.0
    for row, target in zip(logits.tolist(), targets.tolist()):
        normaliser = sum(torch.tensor(score, dtype=torch.float64).exp().item() for score in row)
        for piece, score in enumerate(row):
            wanted = (1 - epsilon) * (piece == target) + epsilon / V
            expected -= wanted * (score - torch.tensor(normaliser, dtype=torch.float64).log().item())
    assert smoothed_cross_entropy(logits, targets, epsilon)[0].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_the_plain_loss_is_that_of_torch(smoothing: float) -> None:
    logits, targets = torch.randn(M, V, dtype=torch.float64), torch.randint(V, (M,))
    loss, nll = smoothed_cross_entropy(logits, targets, smoothing)
    torch.testing.assert_close(loss, F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum"))
    torch.testing.assert_close(nll, F.cross_entropy(logits, targets, reduction="sum"))


@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("bias", [False, True])
def test_the_chunked_loss_and_its_gradients_are_those_of_torch(smoothing: float, bias: bool) -> None:
    hidden, weight, offset, targets = inputs(bias)
    logits = F.linear(hidden, weight, offset)
    expected = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    loss, nll = linear_cross_entropy(hidden, weight, offset, targets, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nll, F.cross_entropy(logits, targets, reduction="sum"), rtol=1e-12, atol=1e-12)
    for found, wanted in zip(gradients(loss, hidden, weight, offset), gradients(expected, hidden, weight, offset)):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_the_gradients_are_those_of_finite_differences() -> None:
    hidden, weight, bias, targets = inputs(bias=True)

    def loss(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_cross_entropy(hidden, weight, bias, targets, 0.1)[0]

    assert torch.autograd.gradcheck(loss, (hidden, weight, bias))


def test_only_what_requires_a_gradient_gets_one() -> None:
    hidden, weight, _, targets = inputs(bias=False)
    linear_cross_entropy(hidden, weight.detach(), None, targets, 0.1)[0].backward()
    assert hidden.grad is not None and weight.grad is None


def test_without_gradients_the_value_is_the_same() -> None:
    hidden, weight, bias, targets = inputs(bias=True)
    with torch.no_grad():
        loss, _ = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, linear_cross_entropy(hidden, weight, bias, targets, 0.1)[0].detach())


def test_the_likelihood_carries_no_gradient() -> None:
    hidden, weight, _, targets = inputs(bias=False)
    assert not linear_cross_entropy(hidden, weight, None, targets, 0.1)[1].requires_grad


def test_an_improbable_target_costs_much_and_not_infinity() -> None:
    hidden = torch.tensor([[300.0]])
    weight = torch.tensor([[1.0], [-1.0]])
    loss, nll = linear_cross_entropy(hidden, weight, None, torch.tensor([1]), 0.0)
    assert loss.item() == nll.item() == pytest.approx(600.0)


def test_autocast_computes_products_in_its_type() -> None:
    hidden, weight, bias, targets = inputs(bias=True)
    assert bias is not None
    exact = F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum")
    leaves = [leaf.detach().float().requires_grad_() for leaf in (hidden, weight, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = linear_cross_entropy(leaves[0], leaves[1], leaves[2], targets, 0.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-2)
    assert loss.item() != pytest.approx(exact.item(), rel=1e-5)
    for found, wanted in zip(gradients(loss, *leaves), gradients(exact, hidden, weight, bias)):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), wanted, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_products_in_bf16_are_summed_in_float32(smoothing: float) -> None:
    """Sums in bf16 stop growing after some hundred chunks that are alike."""
    hidden, weight, bias, targets = (leaf[:16].detach() for leaf in inputs(bias=True) if leaf is not None)
    found = []
    for times in (1, 600):
        leaves = [leaf.float().requires_grad_() for leaf in (hidden.repeat(times, 1), weight, bias)]
        loss, nll = linear_cross_entropy(*leaves, targets.repeat(times), smoothing, torch.bfloat16)
        _, of_weight, of_bias = gradients(loss, *leaves)
        found.append([loss.detach(), nll, of_weight, of_bias])
    for one, many in zip(*found):
        torch.testing.assert_close(many, 600 * one, rtol=1e-3, atol=1e-3)


def test_in_float16_a_large_vocabulary_and_a_large_loss_scale_do_no_harm() -> None:
    """The share of smoothing of one piece, 2.5e-6, would hardly be a number in float16, and 2^16 is none at all."""
    generator = torch.Generator().manual_seed(1)
    hidden, weight = torch.randn(8, 4, generator=generator), 0.1 * torch.randn(40_000, 4, generator=generator)
    targets = torch.randint(40_000, (8,), generator=generator)
    found = []
    for dtype in (torch.float32, torch.float16):
        leaves = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        loss, _ = linear_cross_entropy(*leaves, None, targets, 0.1, dtype)
        found.append([loss, *torch.autograd.grad(loss * 2.0**16, leaves)])
    for exact, rounded in zip(*found):
        assert rounded.dtype == torch.float32 and rounded.isfinite().all()
        assert torch.linalg.norm(rounded - exact) < 0.01 * torch.linalg.norm(exact)
    rare = [gradient[:1000] for gradient in (found[0][2], found[1][2])]
    assert torch.linalg.norm(rare[1] - rare[0]) < 0.02 * torch.linalg.norm(rare[0])


# --- two passes that should agree


def two_passes(bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    _, weight, offset, targets = inputs(bias)
    passes = torch.randn(2, M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return passes.requires_grad_(), weight, offset, targets


def plain_agreement(passes: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of both passes smoothed by 0.1, and the mean of both divergences."""
    logits = [F.linear(hidden, weight, bias) for hidden in passes]
    losses = [F.cross_entropy(scores, targets, label_smoothing=0.1, reduction="sum") for scores in logits]
    first, second = (scores.log_softmax(-1) for scores in logits)
    divergences = [
        F.kl_div(there, here, reduction="sum", log_target=True) for here, there in ((first, second), (second, first))
    ]
    return torch.stack(losses).sum(), torch.stack(divergences).mean()


@pytest.mark.parametrize("bias", [False, True])
def test_the_chunked_agreement_and_its_gradients_are_those_of_torch(bias: bool) -> None:
    passes, weight, offset, targets = two_passes(bias)
    plain, wanted = plain_agreement(passes, weight, offset, targets)
    expected = plain + 3 * wanted
    loss, nll, divergence = linear_agreement(passes, weight, offset, targets, 0.1, 3.0)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(divergence, wanted.detach(), rtol=1e-12, atol=1e-12)
    alone = [linear_cross_entropy(hidden, weight, offset, targets, 0.0)[0] for hidden in passes]
    torch.testing.assert_close(nll, torch.stack(alone).sum().detach(), rtol=1e-12, atol=1e-12)
    assert not nll.requires_grad and not divergence.requires_grad
    for found, wanted in zip(gradients(loss, passes, weight, offset), gradients(expected, passes, weight, offset)):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_passes_that_agree_are_two_cross_entropies() -> None:
    hidden, weight, bias, targets = inputs(bias=True)
    with torch.no_grad():
        loss, nll, divergence = linear_agreement(torch.stack([hidden, hidden]), weight, bias, targets, 0.1, 3.0)
        alone, likelihood = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    torch.testing.assert_close(loss, 2 * alone)
    torch.testing.assert_close(nll, 2 * likelihood)
    assert divergence.item() == pytest.approx(0.0, abs=1e-12)


def test_a_piece_that_is_ruled_out_adds_nothing() -> None:
    passes, weight, bias, targets = two_passes(bias=True)
    assert bias is not None
    without = torch.arange(V) != 3
    ruled_out = torch.where(without, bias.detach(), -torch.inf)
    targets = targets.masked_fill(targets == 3, 4)
    loss, nll, divergence = linear_agreement(passes, weight, ruled_out, targets, 0.0, 3.0)
    places = without.cumsum(0) - 1  # of the other pieces among themselves
    expected = linear_agreement(passes, weight[without], bias[without], places[targets], 0.0, 3.0)
    for found, wanted in zip((loss, nll, divergence), expected):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(gradients(loss, passes, weight), gradients(expected[0], passes, weight)):
        torch.testing.assert_close(found, wanted)


def test_agreement_in_bf16_is_summed_in_float32() -> None:
    passes, weight, bias, targets = two_passes(bias=True)
    assert bias is not None
    plain, divergence = plain_agreement(passes, weight, bias, targets)
    leaves = [leaf.detach().float().requires_grad_() for leaf in (passes, weight, bias)]
    loss, _, found = linear_agreement(leaves[0], leaves[1], leaves[2], targets, 0.1, 3.0, torch.bfloat16)
    assert loss.dtype == found.dtype == torch.float32
    assert loss.item() == pytest.approx((plain + 3 * divergence).item(), rel=2e-2)
    for rounded, exact in zip(gradients(loss, *leaves), gradients(plain + 3 * divergence, passes, weight, bias)):
        assert torch.linalg.norm(rounded - exact) < 0.03 * torch.linalg.norm(exact)

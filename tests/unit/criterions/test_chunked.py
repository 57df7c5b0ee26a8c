"""Losses by chunks of rows equal those of all rows at once, gradients included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.criterions import chunked
from nmt.criterions.chunked import by_rows, cross_entropy_of, log_probabilities, symmetric_divergence

ROWS, WIDTH, VOCABULARY = 11, 5, 7


def values(seed: int) -> Tensor:
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [1, 3, 11, 100])
def test_chunks_of_any_size_give_the_same_rows_and_gradients(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chunked.CHUNK_ROWS, "cpu", rows)
    layer = nn.Linear(WIDTH, VOCABULARY).double()

    def divergence(one: Tensor, other: Tensor) -> Tensor:
        return symmetric_divergence(log_probabilities(layer(one)), log_probabilities(layer(other)))

    def gradients(evaluate: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        inputs = [values(1).requires_grad_(), values(2).requires_grad_()]
        result = evaluate(*inputs)
        (result * torch.arange(ROWS)).sum().backward()  # type: ignore[no-untyped-call]
        found = [
            result.detach(),
            *(tensor.grad for tensor in (*inputs, *layer.parameters()) if tensor.grad is not None),
        ]
        layer.zero_grad()
        return found

    chunks, whole = gradients(lambda *inputs: by_rows(divergence, *inputs)), gradients(divergence)
    assert len(chunks) == len(whole) == 5
    for one, other in zip(chunks, whole):
        torch.testing.assert_close(one, other)


def test_scores_of_a_chunk_are_dropped_and_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chunked.CHUNK_ROWS, "cpu", 4)
    calls = []

    def remember(rows: Tensor) -> Tensor:
        calls.append(len(rows))
        return rows.exp().sum(1)

    result = by_rows(remember, values(1).requires_grad_())
    assert calls == [4, 4, 3]
    result.sum().backward()  # type: ignore[no-untyped-call]
    assert sorted(calls) == [3, 3, 4, 4, 4, 4]


def test_the_divergence_is_the_sum_of_both_directions_and_zero_of_a_thing_with_itself() -> None:
    one, other = log_probabilities(values(1)), log_probabilities(values(2))
    kl = nn.functional.kl_div
    expected = kl(one, other, log_target=True, reduction="none") + kl(other, one, log_target=True, reduction="none")
    torch.testing.assert_close(symmetric_divergence(one, other), expected.sum(1))
    assert not symmetric_divergence(one, one).any()


def test_what_is_impossible_contributes_neither_a_value_nor_a_gradient() -> None:
    logits = [values(seed).index_fill_(1, torch.tensor([2]), -torch.inf).requires_grad_() for seed in (1, 2)]
    one, other = map(log_probabilities, logits)
    total = symmetric_divergence(one, other) + cross_entropy_of(one.detach(), other)
    total.sum().backward()  # type: ignore[no-untyped-call]
    assert total.isfinite().all()
    for tensor in logits:
        assert tensor.grad is not None and tensor.grad.isfinite().all()


def test_cross_entropy_of_a_certain_target_is_its_negative_log_probability() -> None:
    predicted = log_probabilities(values(1))
    certain = torch.full_like(predicted, -torch.inf)
    certain[:, 3] = 0.0
    torch.testing.assert_close(cross_entropy_of(certain, predicted), -predicted[:, 3])

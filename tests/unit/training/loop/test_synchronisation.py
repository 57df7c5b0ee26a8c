"""Nothing in an update waits for the device: no number is fetched, no shape depends on values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn.attention import varlen
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config.sections import TrainingConfig
from nmt.data.corpus import Split
from nmt.models import transformer as transformer_module
from nmt.training.loop.batches import read_batch
from nmt.training.loop.step import Step, Totals, clip, divide
from nmt.training.loop.stepping import Stepping

# The last one stands for torch.tensor(numbers, device=...): the copy of ordinary memory to a GPU is waited for.
WAITS = {
    "aten::_local_scalar_dense",
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::unique_consecutive",
    "aten::lift_fresh",
}


class NoWaiting(TorchDispatchMode):
    """Raises where a GPU would be waited for."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        indexes_with_booleans = name == "aten::index" and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if name in WAITS or indexes_with_booleans:
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("flat", "few_shapes"), [(False, False), (True, False), (True, True)])
def test_an_update_waits_for_nothing(
    make_step: Callable[..., Step],
    make_split: Callable[..., Split],
    monkeypatch: pytest.MonkeyPatch,
    flat: bool,
    few_shapes: bool,
) -> None:
    kernel = Mock(side_effect=lambda query, *rest, **options: query + rest[1].sum())
    monkeypatch.setattr(transformer_module, "kernel_runs", lambda device: flat)
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    step, totals = make_step(), Totals()
    step.model.few_shapes = few_shapes
    for layer in [*step.model.encoder.layers, *step.model.decoder.layers]:  # type: ignore[union-attr, operator]
        monkeypatch.setattr(type(layer), "flat", flat)
    batch, limits = read_batch(make_split(6), np.arange(6)), TrainingConfig(max_update=1, clip_norm=1.0)
    make = Stepping(torch.optim.Adam(step.parameters(), fused=True), ahead=True)
    before = [parameter.detach().clone() for parameter in step.parameters()]
    with NoWaiting():
        report = step(batch)
        report.loss_sum.backward()
        totals.add(report)
        parameters = [parameter for parameter in step.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        divide(gradients, totals.denominator)
        norm = torch.nn.utils.get_total_norm(gradients)
        figures = totals.figures(norm, learning_rate=0.1)
        make(figures, lambda: clip(parameters, norm, limits))
    assert figures.fetch().finite and figures.fetch().grad_norm > 0
    assert not any(torch.equal(*pair) for pair in zip(before, step.parameters()))
    assert kernel.called == flat and all(gradient.abs().sum() > 0 for gradient in gradients)


def test_the_watch_notices() -> None:
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.ones(1).sum().item()
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.arange(3)[torch.arange(3) > 1]
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.tensor(3.0)

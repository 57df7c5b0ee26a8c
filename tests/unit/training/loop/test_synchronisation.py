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

from nmt.config.choices import Precision
from nmt.config.sections import TrainingConfig
from nmt.data.corpus.folder import Split
from nmt.distributed.world import World
from nmt.models.transformer import transformer as flat_module
from nmt.optim import Progress
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop import updater as updater_module
from nmt.training.loop.batches import BatchReader, UpdateBatches, read_batch
from nmt.training.loop.learner import Arithmetic, Learner, Step
from nmt.training.loop.updater import Updater

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


@pytest.mark.parametrize("flat", [False, True])
def test_an_update_waits_for_nothing(
    make_step: Callable[..., Step],
    make_split: Callable[..., Split],
    monkeypatch: pytest.MonkeyPatch,
    flat: bool,
) -> None:
    kernel = Mock(side_effect=lambda query, *rest, **options: query + rest[1].sum())
    monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device, width: flat)
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    step = make_step()
    for layer in [*step.model.encoder.layers, *step.model.decoder.layers]:  # type: ignore[union-attr, operator]
        monkeypatch.setattr(type(layer), "flat", flat)
    batch, limits = read_batch(make_split(6), np.arange(6)), TrainingConfig(max_update=1, clip_norm=1.0)
    monkeypatch.setattr(updater_module, "runs_ahead", lambda *_: True)
    monkeypatch.setattr(updater_module, "seed_torch", lambda *_: None)
    optimizer = torch.optim.Adam(step.parameters(), fused=True)
    learner = Learner(step, optimizer, Arithmetic(torch.device("cpu"), Precision.fp32), World())
    updater = Updater(
        learner, lambda progress: 1.0, BatchReader(lambda indices: batch, torch.device("cpu")), limits, seed=1
    )
    update = UpdateBatches((np.arange(6),), 1, DataPosition(2))
    before = [parameter.detach().clone() for parameter in step.parameters()]
    with NoWaiting():
        totals = updater.accumulate(1, update)
        updater.launch(update, totals, Progress(1, 1, 0), began=0.0)
    settled = updater.settle()
    assert settled is not None and settled.report.finite and settled.report.grad_norm > 0
    assert not any(torch.equal(*pair) for pair in zip(before, step.parameters()))
    gradients = [parameter.grad for parameter in step.parameters() if parameter.grad is not None]
    assert kernel.called == flat and all(gradient.abs().sum() > 0 for gradient in gradients)


def test_the_watch_notices() -> None:
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.ones(1).sum().item()
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.arange(3)[torch.arange(3) > 1]
    with pytest.raises(AssertionError, match="waits"), NoWaiting():
        torch.tensor(3.0)

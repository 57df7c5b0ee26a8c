"""What a model does not use, it should not have."""

from __future__ import annotations

import torch

from nmt.testing.subjects import Subject, toy_batch


def assert_every_parameter_learns(subject: Subject) -> None:
    """In training each parameter gets a gradient that is finite and not zero."""
    model = subject.model().train()
    batch = toy_batch(model, (2, 9), (6, 3))
    logits = model.output.logits(model(batch).hidden)
    torch.nn.functional.cross_entropy(logits, batch.targets).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name

"""What learns: the parts that an update changes and a checkpoint holds, and how they compute."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.distributed.world import World
from nmt.training.loop.modes import evaluation_mode
from nmt.training.loop.precision import Arithmetic
from nmt.training.loop.step import Step


@dataclass(frozen=True)
class Learner:
    """A model under its criterion, the optimizer of both, their number format, and the processes that share them."""

    step: Step
    optimizer: torch.optim.Optimizer
    arithmetic: Arithmetic
    world: World

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[dict[str, Tensor]]:
        """Modules in eval mode, and the optimizer's weights for evaluation where it keeps two kinds.

        Yields the weights for training by parameter number, nothing if there is no difference.
        """
        self.step.eval()
        try:
            with evaluation_mode(self.optimizer) as training_weights:
                yield training_weights
        finally:
            self.step.train()

"""Whether an update is made: the optimizer must never see a loss or a gradient that is not finite.

Its averages would not recover from one NaN. Who asks the device waits for it, and it for Python afterwards; so where the
optimizer can pass over an update by itself, it is told on the device, and the figures are read while that computes the
next update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.distributed.world import World
from nmt.training.loop.batches import UpdateBatches
from nmt.training.loop.precision import Arithmetic
from nmt.training.meters import UpdateReport


class Figures:
    """The sums and the norm of an update, on their way from the device."""

    def __init__(self, sums: Tensor, grad_norm: Tensor, names: Sequence[str], learning_rate: float) -> None:
        """``sums``: loss, nll, denominator, tokens, sentences, and the auxiliary losses called ``names``."""
        numbers = torch.cat([sums, grad_norm.double()[None]])
        self.finite = numbers[0].isfinite() & numbers[-1].isfinite()  # on the device
        self._names = names
        self._learning_rate = learning_rate
        self._numbers, self._arrived = numbers, None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.current_stream(numbers.device).record_event()

    def fetch(self) -> UpdateReport:
        """Wait for them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        loss, nll, denominator, tokens, sentences, *auxiliary, grad_norm = self._numbers.tolist()
        return UpdateReport(
            loss=loss,
            nll=nll,
            denominator=denominator,
            tokens=int(tokens),
            sentences=int(sentences),
            grad_norm=grad_norm,
            learning_rate=self._learning_rate,
            seconds=0.0,
            auxiliary=dict(zip(self._names, auxiliary)),
        )


@dataclass(frozen=True)
class Launched:
    """An update of which it is not known yet whether it is made."""

    batches: UpdateBatches
    figures: Figures
    began: float


class Stepping:
    """Lets an optimizer make the updates whose figures are finite, and no others."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, ahead: bool) -> None:
        """``ahead``: it is launched before the figures are known, and passes over an update by itself."""
        self.ahead = ahead
        self._optimizer = optimizer

    def __call__(self, figures: Figures, clip: Callable[[], None]) -> None:
        """Gradients that are not finite are clipped only if nobody will look at them: it spreads what is not finite."""
        if self.ahead:
            self._optimizer.found_inf = (~figures.finite).float()  # type: ignore[attr-defined]
        elif not figures.fetch().finite:
            return
        clip()
        self._optimizer.step()

    def made(self, settle: Callable[[], bool]) -> bool:
        """Whether the last update is; one ahead counts as made until something depends on it."""
        return self.ahead or settle()

    def recall(self, gradients: Callable[[], object]) -> None:
        """Compute the gradients of an update that is to be looked at once more, if others have taken their place."""
        if self.ahead:
            gradients()


def runs_ahead(optimizer: torch.optim.Optimizer, arithmetic: Arithmetic, world: World) -> bool:
    """On a GPU, with torch's fused kernels, which know ``found_inf``; in fp16 the next loss needs the verdict on this one.

    Parameters that are shared out wait: it has not been tried with these. What is built upon Adam may do more.
    """
    passes_over = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and all(
        group["fused"] for group in optimizer.param_groups
    )
    return arithmetic.device.type == "cuda" and passes_over and not arithmetic.scales and not world.divides

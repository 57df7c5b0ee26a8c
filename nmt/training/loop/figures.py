"""The figures of an update: sums over its batches, which stay on the device until somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nmt.interface import LossReport
from nmt.reporting.meters import UpdateReport


class Totals:
    """Sums over the batches of an update."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None  # loss, nll, denominator, tokens, sentences, and the auxiliary losses
        self._names: list[str] = []  # of the auxiliary losses

    def add(self, report: LossReport, *, counts: bool = True) -> None:
        """``counts`` False: only the names are taken note of."""
        self._names = list(report.auxiliary)
        parts = [report.loss_sum.detach(), report.nll_sum, report.denominator, report.num_tokens]
        parts += [torch.full_like(report.num_tokens, report.num_sentences), *report.auxiliary.values()]
        found = torch.stack([part.double() for part in parts])
        if not counts:
            found = torch.zeros_like(found)
        self._sums = found if self._sums is None else self._sums + found

    def over(self, total: Callable[[Tensor], Tensor]) -> None:
        """Replace the sums by what ``total`` makes of them: those of all processes."""
        self._sums = total(self.sums)

    @property
    def sums(self) -> Tensor:
        assert self._sums is not None, "an update has at least one batch"
        return self._sums

    @property
    def denominator(self) -> Tensor:
        """Never zero: an update without a single token has zero gradients and leaves them so."""
        return self.sums[2].clamp(min=1e-8)

    def figures(self, grad_norm: Tensor, *, learning_rate: float) -> Figures:
        return Figures(self.sums, grad_norm, self._names, learning_rate)


class Figures:
    """The sums and the gradient norm of an update, on their way from the device."""

    def __init__(self, sums: Tensor, grad_norm: Tensor, names: Sequence[str], learning_rate: float) -> None:
        """``sums``: as in ``Totals``, with the auxiliary losses called ``names``."""
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
        named, rate = dict(zip(self._names, auxiliary)), self._learning_rate
        return UpdateReport(loss, nll, denominator, int(tokens), int(sentences), grad_norm, rate, 0.0, named)

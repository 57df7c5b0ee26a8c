"""One update: gradients of all its micro-batches, divided once by their common denominator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.sections import TrainingConfig
from nmt.criterions import Criterion
from nmt.devices import is_shortage
from nmt.errors import DeviceError
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.training.loop.stepping import Figures


class Step(nn.Module):
    """What is trained: a model under its criterion. Whatever wraps a module (compilation, processes) wraps this."""

    def __init__(self, model: EncoderDecoder, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, batch: Batch) -> LossReport:
        report: LossReport = self.criterion(self.model, batch)
        return report


class Totals:
    """Sums over the micro-batches of an update; on the device until ``figures`` fetches them, once."""

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
        assert self._sums is not None, "an update has at least one batch"
        self._sums = total(self._sums)

    @property
    def denominator(self) -> Tensor:
        """Never zero: an update without a single token has zero gradients and leaves them so."""
        assert self._sums is not None
        return self._sums[2].clamp(min=1e-8)

    def figures(self, grad_norm: Tensor, *, learning_rate: float) -> Figures:
        assert self._sums is not None
        return Figures(self._sums, grad_norm, self._names, learning_rate)


def seed_torch(*key: int) -> None:
    """Seed all of torch's generators with a number drawn from ``key``, say (seed, update, micro-batch)."""
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))


def divide(gradients: list[Tensor], denominator: Tensor) -> None:
    """In place, all at once."""
    torch._foreach_div_(gradients, denominator.to(torch.float32))


def clip(parameters: list[nn.Parameter], norm: Tensor, limits: TrainingConfig) -> None:
    """Clip gradients, whose common norm is ``norm``, in place: as one vector or element by element."""
    if limits.clip_norm > 0:
        nn.utils.clip_grads_with_norm_(parameters, limits.clip_norm, norm)
    if limits.clip_value > 0:
        nn.utils.clip_grad_value_(parameters, limits.clip_value)


@contextlib.contextmanager
def explained_shortage(where: str, advice: str) -> Iterator[None]:
    """Say which work there was no memory for, and what would need less."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        raise DeviceError(f"out of memory {where}; {advice}") from error


def described(batch: Batch) -> str:
    longest_source, longest_target = batch.source.size(1), batch.target_in.size(1)
    return f"{batch.num_sentences} sentences of up to {longest_source} source and {longest_target} target pieces"

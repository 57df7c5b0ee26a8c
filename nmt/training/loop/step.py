"""What is trained, the random numbers of a batch, and what is said of a batch that finds no memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from nmt.criterions import Criterion
from nmt.devices import is_shortage
from nmt.errors import DeviceError
from nmt.interface import Batch, EncoderDecoder, LossReport

SMALLER_BATCHES = "lower --max-tokens and raise --update-freq by the same factor"


class Step(nn.Module):
    """A model under its criterion. Whatever wraps a module (compilation, processes) wraps this."""

    def __init__(self, model: EncoderDecoder, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, batch: Batch) -> LossReport:
        report: LossReport = self.criterion(self.model, batch)
        return report


def seed_torch(*key: int) -> None:
    """Seed all of torch's generators with a number drawn from ``key``, say (seed, update, micro-batch)."""
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))


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

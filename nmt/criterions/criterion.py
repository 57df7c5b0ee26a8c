"""What an objective is to the trainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from nmt.interface import Batch, EncoderDecoder, LossReport


class Criterion(nn.Module, ABC):
    """An objective over one micro-batch; sums, never means (the trainer divides once per update)."""

    runs_model_once: ClassVar[bool] = True  # then what it launches may be recorded and replayed
    asks_for_attention: ClassVar[bool] = False  # for which batches keep their padding

    @abstractmethod
    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport: ...

"""Training objectives. A criterion runs the model itself and returns its own denominator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.registry import Registry, import_all


class Criterion(nn.Module, ABC):
    """An objective over one micro-batch; sums, never means (the trainer divides once per update)."""

    runs_model_once: ClassVar[bool] = True  # then what it launches may be recorded and replayed
    asks_for_attention: ClassVar[bool] = False  # for which batches keep their padding

    @abstractmethod
    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport: ...


# builder(config, **parts) -> Criterion. A builder is handed the finished parts that it names as parameters: `sampler`
# and `reward` (see `nmt.criterions.sequences`; their options are those of `SequenceConfig`), `teacher` (an
# `EncoderDecoder` in eval mode; the option `teacher` says where it lies).
criterions: Registry[Criterion] = Registry("criterion")

import_all(__name__, __path__)

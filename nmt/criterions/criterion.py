"""What an objective is to the trainer, and what it is handed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol

from torch import nn

from nmt.interface import Batch, EncoderDecoder, LossReport

if TYPE_CHECKING:
    from nmt.criterions.sequences import Reward, Sampler


class Criterion(nn.Module, ABC):
    """An objective over one micro-batch; sums, never means (the trainer divides once per update)."""

    runs_model_once: ClassVar[bool] = True  # then what it launches may be recorded and replayed
    asks_for_attention: ClassVar[bool] = False  # for which batches keep their padding

    @abstractmethod
    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport: ...


class CriterionParts(Protocol):
    """What a builder that has a parameter ``parts`` is handed. Each part is made when it is first read."""

    @property
    def sampler(self) -> Sampler:
        """Draws translations; its options are those of ``SequenceConfig``."""

    @property
    def reward(self) -> Reward:
        """The one that the option ``reward`` names."""

    @property
    def teacher(self) -> EncoderDecoder:
        """The trained model that the option ``teacher`` names, in eval mode on the model's device; same vocabularies."""

"""The interface of a criterion, and the parts that its builder receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from torch import nn

from nmt.interface import Batch, EncoderDecoder, LossReport

if TYPE_CHECKING:
    from nmt.criterions.sequences import Reward, Sampler


class Criterion(nn.Module, ABC):
    """An objective over one micro-batch; sums, never means (the trainer divides once per update)."""

    @abstractmethod
    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport: ...


class CriterionParts(Protocol):
    """The ``parts`` argument of a builder. Each part is built at its first access."""

    @property
    def sampler(self) -> Sampler:
        """Draws translations; its options are those of ``SequenceConfig``."""

    @property
    def reward(self) -> Reward:
        """The reward that the option ``reward`` selects."""

    @property
    def teacher(self) -> EncoderDecoder:
        """The trained model that the option ``teacher`` names, in eval mode on the model's device; same vocabularies."""

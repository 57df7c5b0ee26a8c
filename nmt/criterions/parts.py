"""What criterions may ask for beside their options. ``nmt.training`` makes it, and hands it to builders as ``parts``."""

from __future__ import annotations

from typing import Protocol

from nmt.criterions.sequences import Reward, Sampler
from nmt.interface import EncoderDecoder


class CriterionParts(Protocol):
    """Each part is made when it is first read."""

    @property
    def sampler(self) -> Sampler:
        """Draws translations; its options are those of ``SequenceConfig``."""
        ...

    @property
    def reward(self) -> Reward:
        """The one that the option ``reward`` names."""
        ...

    @property
    def teacher(self) -> EncoderDecoder:
        """The trained model that the option ``teacher`` names, in eval mode on the model's device; same vocabularies."""
        ...

"""A plugin for tests: cross-entropy whose second process finds no memory for more than a few sentences."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.cross_entropy import CrossEntropyConfig, TokenCrossEntropy
from nmt.interface import Batch, EncoderDecoder, LossReport


@dataclass
class ScarceConfig(CrossEntropyConfig):
    """Cross-entropy where memory is scarce."""

    sentences: int = option(0, help="for how many sentences the second process has memory")


class Scarce(TokenCrossEntropy):
    def __init__(self, config: ScarceConfig) -> None:
        super().__init__(0.0, config.auxiliary_weights)
        self.sentences = config.sentences

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        if self.training and os.environ.get("RANK") == "1" and batch.num_sentences > self.sentences:
            raise torch.OutOfMemoryError(f"no memory for {batch.num_sentences} sentences")
        return super().forward(model, batch)


@criterions.register("scarce", ScarceConfig)
def build(config: ScarceConfig) -> Scarce:
    return Scarce(config)

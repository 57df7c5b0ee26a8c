"""A plugin for tests: a sentence that spoils its update, and updates that run ahead of their figures as on a GPU."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

import nmt.optim.torch_optimizers
from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.config import CrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.distributed.world import World
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.training.loop import updater
from nmt.training.loop.learner import Arithmetic


@dataclass
class SpoiltConfig(CrossEntropyConfig):
    """Cross-entropy that is not a number for one sentence."""

    sentence: int = option(0, help="which sentence it is")
    ahead: bool = option(False, help="whether updates run ahead")


class Spoilt(TokenCrossEntropy):
    def __init__(self, config: SpoiltConfig) -> None:
        super().__init__(config)
        self.sentence = config.sentence

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        report = super().forward(model, batch)
        if self.training and self.sentence in batch.sentence_ids:
            report = replace(report, loss_sum=report.loss_sum * float("nan"))
        return report


@criterions.register("spoilt", SpoiltConfig)
def build(config: SpoiltConfig) -> Spoilt:
    nmt.optim.torch_optimizers.runs_fused = lambda groups: True  # Adam on a CPU has the kernel too
    if config.ahead:
        updater.runs_ahead = ahead
    return Spoilt(config)


def ahead(optimizer: torch.optim.Optimizer, arithmetic: Arithmetic, world: World) -> bool:
    logging.getLogger("nmt.training").info("updates run ahead")
    return True

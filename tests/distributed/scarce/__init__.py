"""A plugin for tests: a criterion and a metric that do not get along as well in the second process as in the first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nmt.config.option import option
from nmt.criterions import criterions
from nmt.criterions.config import CrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.scoring import Score, TextOptions, scorers

SPOILED = "source_input.embedding.table.weight"  # of no layer, so that it is whole while a loss is computed


def second() -> bool:
    return os.environ.get("RANK") == "1"


def exhausted(batch: Batch) -> None:
    raise torch.OutOfMemoryError(f"no memory for {batch.num_sentences} sentences")


@dataclass
class ScarceConfig(CrossEntropyConfig):
    """Cross-entropy where memory is scarce."""

    sentences: int = option(0, help="for how many sentences the second process has memory; 0: for all")
    backward: bool = option(False, help="whether memory runs short in the backward pass, not in the forward pass")
    strays: bool = option(False, help="whether a parameter of the second process changes by itself")
    spoiled: bool = option(False, help="whether the gradient of one row, which the second process holds, is not finite")


class Scarce(TokenCrossEntropy):
    def __init__(self, config: ScarceConfig) -> None:
        super().__init__(config)
        self.sentences = config.sentences
        self.backward = config.backward
        self.strays = config.strays
        self.spoiled = config.spoiled

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        short = self.training and self.sentences and second() and batch.num_sentences > self.sentences
        if short and not self.backward:
            exhausted(batch)
        if self.training and self.strays and second():
            with torch.no_grad():
                model.get_parameter(SPOILED).view(-1)[0] += 1e-6
        report = super().forward(model, batch)
        if short:
            report.loss_sum.register_hook(lambda gradient: exhausted(batch))
        if self.training and self.spoiled:
            self.spoiled = False
            last = model.get_parameter(SPOILED)[-1].sum()
            report = replace(report, loss_sum=report.loss_sum + last * float("nan"))
        return report


@criterions.register("scarce", ScarceConfig)
def build(config: ScarceConfig) -> Scarce:
    return Scarce(config)


@dataclass
class ScarceScoreConfig:
    """No options."""


@scorers.register("scarce", ScarceScoreConfig)
class ScarceScore:
    """How many lines there are, if there is memory to count them."""

    higher_is_better = True

    def __init__(self, config: ScarceScoreConfig, text: TextOptions) -> None:
        pass

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        if second():
            raise MemoryError(f"no memory for {len(hypotheses)} lines")
        return Score("lines", float(len(hypotheses)), True, "")

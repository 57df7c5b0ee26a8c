"""Criterions, and what they are handed beside their options: a sampler, a reward, a teacher. The trainer knows of none."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.sentence_rewards import sentence_bleu, sentence_gleu
from nmt.criterions.sequences import Reward, Sampler, Translations
from nmt.criterions.sequences_config import RewardKind, SequenceConfig
from nmt.distributed.world import World
from nmt.errors import UsageError, did_you_mean
from nmt.interface import EncoderDecoder
from nmt.search.config import SamplingConfig
from nmt.search.sampling import SamplingSearch
from nmt.training.setup.datasets import Datasets, check_lengths
from nmt.training.setup.other_models import load_teacher

REWARDS: dict[RewardKind, Reward] = {RewardKind.gleu: sentence_gleu, RewardKind.bleu: sentence_bleu}
PARTS = (
    "parts",
    "sampler",
    "reward",
    "teacher",
)  # parameters that a builder may have: all of them in one, or single ones
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class _Parts:
    """``CriterionParts`` of a run."""

    config: TrainConfig
    datasets: Datasets
    device: torch.device
    world: World

    @cached_property
    def sampler(self) -> Sampler:
        return sampler(cast(SequenceConfig, self.config.criterion), self.world.whole)

    @cached_property
    def reward(self) -> Reward:
        return REWARDS[cast(SequenceConfig, self.config.criterion).reward]

    @cached_property
    def teacher(self) -> EncoderDecoder:
        path = self.config.criterion.teacher
        assert path is not None, "a criterion that learns from a teacher has an option of this name"
        teacher = load_teacher(path, self.datasets.pair, self.device)
        check_lengths(teacher, self.datasets, self.config.batching)
        return teacher


def build_criterion(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> Criterion:
    """The criterion that ``config`` chooses, with the parts that its builder asks for."""
    name = criterions.name_of(type(config.criterion))
    builder = criterions.builder(type(config.criterion))
    asked = list(inspect.signature(builder).parameters.values())[1:]  # the first is the config
    parts: CriterionParts = _Parts(config, datasets, device, world)
    given: dict[str, Any] = {}
    for parameter in asked:
        if parameter.name in PARTS:
            given[parameter.name] = parts if parameter.name == "parts" else getattr(parts, parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise UsageError(
                f"criterion '{name}' asks for a part '{parameter.name}'{did_you_mean(parameter.name, PARTS)}; there are: "
                f"{', '.join(PARTS)}"
            )
    return builder(config.criterion, **given)


def sampler(
    options: SequenceConfig, whole: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> Sampler:
    """Draws from the model's own distribution: nothing is cut off, an empty translation is possible too.

    Inside ``whole`` the model has all its parameters: each process draws as long as its own samples take.
    """
    config = SamplingConfig(max_len_a=options.max_len_a, max_len_b=options.max_len_b, min_len=0)
    search = SamplingSearch(config, options.samples)

    def sample(model: EncoderDecoder, source: Tensor, source_lengths: Tensor, seed: int) -> Translations:
        with whole():
            draws = search.draw(model, source, source_lengths, seed=seed)
        # Search computes in inference mode, whose tensors no gradient may be computed with.
        return Translations(draws.tokens.clone(), draws.lengths.clone(), draws.finished.clone())

    return sample

"""What a criterion is handed beside its configuration: a sampler, a reward, a teacher.

A builder asks by naming a parameter, so a criterion of a plugin gets the same parts as ours, and the trainer knows of
none of them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion, criterions
from nmt.criterions.sequences import Reward, Sampler, Translations
from nmt.criterions.sequences_config import RewardKind, SequenceConfig
from nmt.distributed.world import World
from nmt.errors import UsageError, did_you_mean
from nmt.interface import EncoderDecoder
from nmt.modules.sentence_rewards import sentence_bleu, sentence_gleu
from nmt.search.sampling import SamplingSearch
from nmt.search.sampling_config import SamplingConfig
from nmt.training.setup.datasets import Datasets, check_lengths
from nmt.training.setup.other_models import load_teacher

REWARDS: dict[RewardKind, Reward] = {RewardKind.gleu: sentence_gleu, RewardKind.bleu: sentence_bleu}


@dataclass(frozen=True)
class Order:
    """What parts are made from."""

    config: TrainConfig
    datasets: Datasets
    device: torch.device
    world: World


def build_criterion(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> Criterion:
    """The criterion that ``config`` chooses, with the parts that its builder asks for."""
    name = criterions.name_of(type(config.criterion))
    asked = list(inspect.signature(criterions.entry(name).builder).parameters.values())[1:]  # the first is the config
    order, parts = Order(config, datasets, device, world), dict[str, Any]()
    for parameter in asked:
        if parameter.name in PARTS:
            parts[parameter.name] = PARTS[parameter.name](order)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            raise UsageError(
                f"criterion '{name}' asks for a part '{parameter.name}'{did_you_mean(parameter.name, PARTS)}; there are: "
                f"{', '.join(PARTS)}"
            )
    return criterions.build(config.criterion, **parts)


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


def _teacher(order: Order) -> EncoderDecoder:
    teacher = load_teacher(order.config.criterion.teacher, order.datasets.pair, order.device)
    check_lengths(teacher, order.datasets, order.config.batching)
    return teacher


PARTS: dict[str, Callable[[Order], Any]] = {
    "sampler": lambda order: sampler(order.config.criterion, order.world.whole),
    "reward": lambda order: REWARDS[order.config.criterion.reward],
    "teacher": _teacher,
}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

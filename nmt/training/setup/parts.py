"""What is trained and how it computes, built from a configuration.

Also what criterions are handed beside their options: a sampler, a reward, a teacher. The trainer knows of none.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from nmt.config.choices import Precision
from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.sentence_rewards import sentence_bleu, sentence_gleu
from nmt.criterions.sequences import Reward, Sampler, Translations
from nmt.criterions.sequences_config import RewardKind, SequenceConfig
from nmt.distributed.world import World
from nmt.errors import UsageError, did_you_mean
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.layers.stack import recompute_layers
from nmt.models import models
from nmt.optim import Horizon, Schedule, optimizers, schedulers
from nmt.optim.moving_average import with_average
from nmt.optim.parameter_groups import freeze, parameter_groups
from nmt.search.sampling import SamplingSearch
from nmt.search.sampling_config import SamplingConfig
from nmt.training.loop.learner import Arithmetic, Step, choose_precision, seed_torch
from nmt.training.setup.datasets import Datasets, check_lengths
from nmt.training.setup.other_models import load_teacher

REWARDS: dict[RewardKind, Reward] = {RewardKind.gleu: sentence_gleu, RewardKind.bleu: sentence_bleu}
# Parameters that a builder of a criterion may have: all of them in one, or single ones.
PARTS = ("parts", "sampler", "reward", "teacher")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def build_model(config: TrainConfig, datasets: Datasets) -> EncoderDecoder:
    """A fresh one."""
    pair = datasets.pair
    sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
    seed_torch(config.seed)
    model = models.build(config.model, sizes)
    check_lengths(model, datasets, config.batching)
    return model


def build_step(
    config: TrainConfig, datasets: Datasets, model: EncoderDecoder, device: torch.device, world: World
) -> Step:
    """The model under its criterion, on the device; what is to be frozen is."""
    step = Step(model, build_criterion(config, datasets, device, world)).to(device)
    freeze(step, config.parameters.freeze)
    return step


def save_memory(config: TrainConfig, model: EncoderDecoder) -> None:
    """Let the model's layers run again in the backward pass, if that is asked for."""
    if config.training.checkpoint_activations and not recompute_layers(model):
        raise UsageError(
            "training.checkpoint_activations=true saves nothing: this model has no stack of layers that each run once "
            "in a pass; leave --checkpoint-activations out"
        )


def build_optimizer(config: TrainConfig, step: Step) -> torch.optim.Optimizer:
    rule = optimizers.build(config.optimizer, parameter_groups(step, config.parameters, config.optimizer))
    return with_average(rule, config.training.ema_decay)


def build_schedule(config: TrainConfig, optimizer: torch.optim.Optimizer, horizon: Horizon) -> Schedule:
    """The schedule of a run; where it computes the rate itself, the optimizer's own becomes a factor of it."""
    base_rate = float(config.optimizer.base_rate)
    if getattr(config.scheduler, "sets_rate", False):
        for group in optimizer.param_groups:
            group["lr"] /= base_rate
        base_rate = 1.0
    return schedulers.build(config.scheduler, replace(horizon, base_rate=base_rate))


def build_arithmetic(
    config: TrainConfig, datasets: Datasets, model: EncoderDecoder, device: torch.device, before: Precision | None
) -> Arithmetic:
    """How the model computes; ``before`` is the precision of the run so far."""
    sizes = {"width": model.width, "vocabulary": len(datasets.pair.target.vocabulary)}
    chosen = choose_precision(config.device.precision, device, **sizes, before=before)
    arithmetic = Arithmetic(device, chosen)
    arithmetic.prepare(model)
    return arithmetic


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
    builder = criterions.builder(type(config.criterion))
    parts: CriterionParts = _Parts(config, datasets, device, world)
    given: dict[str, Any] = {}
    for parameter in list(inspect.signature(builder).parameters.values())[1:]:  # the first is the config
        if parameter.name in PARTS:
            given[parameter.name] = parts if parameter.name == "parts" else getattr(parts, parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            name = criterions.name_of(type(config.criterion))
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

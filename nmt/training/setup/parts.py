"""What is trained and how it computes, built from a configuration."""

from __future__ import annotations

from dataclasses import replace

import torch

from nmt.config.choices import Precision
from nmt.config.sections import TrainConfig
from nmt.distributed.world import World
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.layers.stack import recompute_layers
from nmt.models import models
from nmt.optim import Horizon, Schedule, optimizers, schedulers
from nmt.optim.moving_average import with_average
from nmt.optim.parameter_groups import freeze, parameter_groups
from nmt.training.loop.precision import Arithmetic, choose_precision
from nmt.training.loop.step import Step, seed_torch
from nmt.training.setup.criterion_parts import build_criterion
from nmt.training.setup.datasets import Datasets, check_lengths


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
    vocabulary = len(datasets.pair.target.vocabulary)
    wanted = config.device.precision
    chosen = choose_precision(wanted, device, width=model.width, vocabulary=vocabulary, before=before)
    arithmetic = Arithmetic(device, chosen)
    arithmetic.prepare(model)
    return arithmetic

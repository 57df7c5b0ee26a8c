"""Build model, criterion, optimizer, schedule and arithmetic from a configuration, and load models of other runs.

Criterions receive the parts that they need: a sampler, a reward, a teacher. The trainer does not know of these.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from nmt.config.choices import Precision
from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.config import RewardKind, SequenceConfig
from nmt.criterions.sentence_rewards import sentence_bleu, sentence_gleu
from nmt.criterions.sequences import Reward, Sampler, Translations
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import SPECIALS, UNK, Vocabulary, VocabularySizes
from nmt.devices import meant, require_precision
from nmt.devices.faults import FastPath, avoid, in_words, recorded_faults
from nmt.distributed.world import World
from nmt.engines.model_engine import ModelEngine
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.interface import Batch, EncoderDecoder
from nmt.layers.stack import recompute_layers
from nmt.models import models
from nmt.models.ignored import build_model, without_effect
from nmt.models.loading import LoadedModel, architecture, base_at, load_model
from nmt.models.vocabulary_axes import vocabulary_axes
from nmt.optim import Horizon, ParameterGroups, Schedule, optimizers, schedulers
from nmt.optim.moving_average import with_average
from nmt.optim.parameter_groups import choose_trained, parameter_groups
from nmt.search.config import SamplingConfig
from nmt.search.requests import Request, Sentences
from nmt.search.sampling import SamplingSearch
from nmt.storage.checkpoints import load_parameters
from nmt.training.checkpoints.fingerprint import differences
from nmt.training.checkpoints.run_state import RunSettings
from nmt.training.loop.learner import Arithmetic, Step, choose_precision, seed_torch
from nmt.training.setup.contradictions import check
from nmt.training.setup.datasets import Datasets, check_lengths, require_weights
from nmt.training.setup.metrics import build_scorers

logger = logging.getLogger("nmt.training")

REWARDS: dict[RewardKind, Reward] = {RewardKind.gleu: sentence_gleu, RewardKind.bleu: sentence_bleu}
# Parts that the builder of a criterion may take: ``parts`` for all, or single ones.
PARTS = ("parts", "sampler", "reward", "teacher")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def new_model(config: TrainConfig, datasets: Datasets) -> EncoderDecoder:
    """Build a model with fresh parameters."""
    seed_torch(config.seed)
    model = build_model(config.model, datasets.pair.sizes)
    check_lengths(model, datasets, config.batching)
    return model


def check_ignored(model: EncoderDecoder, *, resumes: bool) -> None:
    """Refuse a new run with options that have no effect in its model; a resumed run only gets a warning."""
    if not model.ignored:
        return
    message = without_effect(model.ignored)
    if not resumes:
        what = "it" if len(model.ignored) == 1 else "them"
        raise UsageError(f"{message}; omit {what} (if a preset sets it: give the default), or choose another --arch")
    logger.warning(message)


def check_without_corpus(config: TrainConfig) -> None:
    """Check the options without corpora, on a model with a placeholder vocabulary on the meta device."""
    build_scorers(config.validation)
    check(config, longest=None, max_update=config.training.last_update)
    for mix in (config.sampling.first, *(later.mix for later in config.sampling.later_mixes())):
        require_weights(mix, config.data)  # of corpora with one direction each
    check_ignored(_model_without_memory(config), resumes=False)


def shapes_without_corpus(config: TrainConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the model, with an invented vocabulary."""
    return {name: tuple(tensor.shape) for name, tensor in _model_without_memory(config).state_dict().items()}


def _model_without_memory(config: TrainConfig) -> EncoderDecoder:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return build_model(config.model, VocabularySizes(1000, 1000, shared=True))


def build_step(
    config: TrainConfig, datasets: Datasets, model: EncoderDecoder, device: torch.device, world: World
) -> Step:
    """Return the model under its criterion, on the device, with frozen parameters."""
    step = Step(model, build_criterion(config, datasets, device, world)).to(device)
    choose_trained(step, config.parameters)
    return step


def save_memory(config: TrainConfig, model: EncoderDecoder) -> None:
    """Let the layers of the model run again in the backward pass, with ``training.checkpoint_activations``."""
    if config.training.checkpoint_activations and not recompute_layers(model):
        raise UsageError(
            "training.checkpoint_activations=true saves nothing: this model has no stack of layers that each run once "
            "in a pass; omit --checkpoint-activations"
        )


def build_optimizer(config: TrainConfig, step: Step) -> torch.optim.Optimizer:
    return build_rule(config, parameter_groups(step, config.parameters, config.optimizer))


def build_rule(config: TrainConfig, groups: ParameterGroups) -> torch.optim.Optimizer:
    """Return the update rule for parameter groups, with its moving average if there is one."""
    return with_average(optimizers.build(config.optimizer, groups), config.training.ema_decay)


def build_schedule(config: TrainConfig, optimizer: torch.optim.Optimizer, horizon: Horizon) -> Schedule:
    """Return the schedule. If it computes the learning rate itself, the rates of the optimizer become factors."""
    base_rate = float(config.optimizer.base_rate)
    if config.scheduler.sets_rate:
        for group in optimizer.param_groups:
            group["lr"] /= base_rate
        base_rate = 1.0
    return schedulers.build(config.scheduler, replace(horizon, base_rate=base_rate))


def build_arithmetic(
    config: TrainConfig, datasets: Datasets, model: EncoderDecoder, device: torch.device, before: Precision | None
) -> Arithmetic:
    """Return the device and precision of training, and set them on the model. ``before``: the precision of the run."""
    option, vocabulary = config.device.precision, len(datasets.pair.target.vocabulary)
    precision = choose_precision(option, device, width=model.width, vocabulary=vocabulary, before=before)
    arithmetic = Arithmetic(device, precision)
    arithmetic.prepare(model)
    return arithmetic


def decide_arithmetic(
    config: TrainConfig,
    datasets: Datasets,
    model: EncoderDecoder,
    device: torch.device,
    world: World,
    settings: RunSettings | None,
) -> Arithmetic:
    """Decide the precision on rank 0 for all ranks, set it on the model and log it. A resumed run keeps its decision, which
    ``settings`` holds."""
    _avoid_faults(device, world, settings)
    before = None if settings is None else Precision[settings.precision]
    decided = world.on_main(lambda: build_arithmetic(config, datasets, model, device, before).precision)
    require_precision(device, decided)
    arithmetic = Arithmetic(device, decided)
    arithmetic.prepare(model)
    option = config.device.precision
    automatic = f" (chosen by --precision {option.name})" if meant(option, device) is Precision.auto else ""
    logger.info("training on %s%s", arithmetic, automatic)
    if settings is not None and settings.computed_on != str(arithmetic):
        logger.info("resuming on %s; before, the run computed on %s", arithmetic, settings.computed_on)
    return arithmetic


def _avoid_faults(device: torch.device, world: World, settings: RunSettings | None) -> None:
    """Avoid on all ranks the paths recorded for the device of rank 0. A resumed run avoids those of its checkpoint, if it
    still runs on that kind of device."""
    recorded = world.on_main(lambda: recorded_faults(device))
    chosen = recorded
    if settings is not None and settings.avoided is not None and settings.device_type == device.type:
        chosen = frozenset(path for path in FastPath if path.name in settings.avoided)
    avoid(device, chosen)
    if chosen:
        logger.info("not selected automatically, because nmt-doctor failed: %s", in_words(chosen))
    if recorded - chosen:
        logger.warning(
            "nmt-doctor failed after this run had started: %s; the resumed run still uses it, only a new run avoids it",
            in_words(recorded - chosen),
        )


@dataclass(frozen=True)
class _Parts:
    """``CriterionParts`` of a run."""

    config: TrainConfig
    datasets: Datasets | None  # None: there is no corpus of a run
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
        """A trained model of any architecture, which is not trained further."""
        path = self.config.criterion.teacher
        assert path is not None, "a criterion that learns from a teacher has an option of this name"
        if self.datasets is None:
            raise UsageError("this criterion learns from a teacher, which only training runs load; use nmt.train")
        loaded = load_model(path, self.device)
        if loaded.pair.digest() != self.datasets.pair.digest():
            raise _other_vocabularies(path)
        check_lengths(loaded.module, self.datasets, self.config.batching)
        return loaded.module.requires_grad_(False)


def build_criterion(config: TrainConfig, datasets: Datasets | None, device: torch.device, world: World) -> Criterion:
    """Return the criterion, with the parts that its builder takes."""
    builder = criterions.builder(type(config.criterion))
    parts: CriterionParts = _Parts(config, datasets, device, world)
    arguments: dict[str, Any] = {}
    for parameter in list(inspect.signature(builder).parameters.values())[1:]:  # the first is the config
        if parameter.name in PARTS:
            arguments[parameter.name] = parts if parameter.name == "parts" else getattr(parts, parameter.name)
        elif parameter.default is parameter.empty and parameter.kind not in _VARIADIC:
            name = criterions.name_of(type(config.criterion))
            raise UsageError(
                f"criterion '{name}' takes an unknown argument '{parameter.name}'{did_you_mean(parameter.name, PARTS)}; "
                f"supported: {', '.join(PARTS)}"
            )
    return builder(config.criterion, **arguments)


def sampler(
    options: SequenceConfig, whole: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext
) -> Sampler:
    """Return a function that samples from the unchanged distribution of a model; translations may be empty. Inside ``whole``
    the model has all its parameters, and each rank samples without waiting for others."""
    config = SamplingConfig(max_len_a=options.max_len_a, max_len_b=options.max_len_b, min_len=0)
    search = SamplingSearch(config, options.samples)

    def sample(model: EncoderDecoder, batch: Batch, seed: int) -> Translations:
        device = batch.source.device
        requests = [Request(start=tuple(start)) for start in batch.starts.tolist()] if batch.started else None
        with whole():
            sentences = Sentences.of_tensors(batch.source, batch.source_lengths, requests=requests)
            draws = search.draw(ModelEngine(model, device), sentences, seed)
        return Translations(*(torch.from_numpy(a).to(device) for a in (draws.tokens, draws.lengths, draws.finished)))

    return sample


def start_from(config: TrainConfig, model: EncoderDecoder, pair: LanguagePair) -> None:
    """Copy the parameters of ``--finetune-from-model``, which must have the same architecture. Other vocabularies are
    refused unless ``--finetune-map-vocabulary`` maps them."""
    path = config.checkpoint.finetune_from_model
    assert path is not None, "the caller asks for it"
    loaded = load_model(path, torch.device("cpu"))
    others = differences(architecture(to_plain(loaded.config)), architecture(to_plain(config.model)))
    if others:  # where shapes do not fit either, loading says so
        listed = "; ".join(f"model.{key}: {change}" for key, change in others.items())
        logger.warning("the model of %s has other options (%s): its parameters may not be useful here", path, listed)
    own, base = pair.languages, loaded.pair.languages
    if own and base and (own.source, own.target) != (base.source, base.target):
        advice = "prepare the corpus with the vocabulary of the model and without --tag-side"
        logger.warning("the language tokens of the corpus are in other places than those of %s; %s", path, advice)
    state = loaded.module.state_dict()
    if loaded.pair.digest() != pair.digest():
        if not config.checkpoint.finetune_map_vocabulary:
            raise _other_vocabularies(
                path, "; or keep only the parameters of common tokens with --finetune-map-vocabulary"
            )
        state = mapped_state(model, config.model, pair, loaded, path)
    load_parameters(model, state, path)
    logger.info("the model starts from the parameters of %s", path)


def base_of_adapters(config: TrainConfig) -> dict[str, Any]:
    """Return what checkpoints note of the model that adapters are trained on; empty without adapters."""
    path = config.checkpoint.finetune_from_model
    if config.parameters.lora_rank is None or path is None:
        return {}
    return base_at(path, config.checkpoint.save_dir, config.parameters.alpha).facts()


def _other_vocabularies(path: str, more_advice: str = "") -> DataError:
    return DataError(
        f"{path} and the corpus have different vocabularies; make the corpus with the model's tokenizer: "
        f"nmt-preprocess --srcdict {path} --tgtdict {path}{more_advice}"
    )


def mapped_state(
    model: EncoderDecoder, config: Any, pair: LanguagePair, other: LoadedModel, path: str
) -> dict[str, Tensor]:
    """Return the state of ``other`` in the shapes of ``model``, built from ``config``. Tokens that only ``model`` has keep
    its values. Tensors of another architecture stay unchanged; loading refuses them."""
    sizes = pair.sizes
    axes = vocabulary_axes(partial(models.build, config), sizes)
    if not axes:
        raise UsageError(
            f"the vocabulary of {path} cannot be mapped: this {models.name_of(type(config))} has no parameters for single "
            f"tokens, or others that depend on the vocabulary; omit --finetune-map-vocabulary"
        )
    rows: dict[str, tuple[Tensor, Tensor]] = {}
    for side in ("source", "target"):
        rows[side] = common_pieces(getattr(other.pair, side).vocabulary, getattr(pair, side).vocabulary)
        count, total = len(rows[side][0]) - len(SPECIALS), getattr(sizes, side) - len(SPECIALS)
        logger.info("%s of the %s %s tokens are in the vocabulary of %s", f"{count:,}", f"{total:,}", side, path)
    own, state = model.state_dict(), dict(other.module.state_dict())
    for name, place in axes.items():
        expected = list(own[name].shape)
        expected[place.axis] = len(getattr(other.pair, place.side).vocabulary)
        if name in state and list(state[name].shape) == expected:
            old, new = rows[place.side]
            state[name] = own[name].index_copy(place.axis, new, state[name].index_select(place.axis, old))
    return state


def common_pieces(other: Vocabulary, own: Vocabulary) -> tuple[Tensor, Tensor]:
    """Return the ids in both vocabularies of special tokens and common tokens, in the order of ``own``."""
    known = [(other.id(piece), own.id(piece)) for piece in own.pieces[len(SPECIALS) :]]
    pairs = [(number, number) for number in range(len(SPECIALS))] + [pair for pair in known if pair[0] != UNK]
    old, new = torch.tensor(pairs).unbind(1)
    return old, new

"""Subjects of the conformance suite: every registered model and preset in small sizes, and small random batches.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.config.composing.composition import preset
from nmt.config.composing.presets import preset_names
from nmt.config.plain import component_from_plain, to_plain
from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import EOS, SPECIALS
from nmt.engines.ensemble import EnsembleEngine
from nmt.engines.model_engine import ModelEngine
from nmt.errors import UsageError
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Hypothesis, Memory, VocabularySizes
from nmt.models import models
from nmt.plugins import preset_folders
from nmt.search import Search
from nmt.search.decoding import Engine
from nmt.search.forced import score_targets
from nmt.search.requests import Sentences

JOINT = VocabularySizes(source=23, target=23, shared=True)


@dataclass(frozen=True)
class Subject:
    """A small model that can be built repeatedly."""

    name: str
    config: Any
    builder: Callable[[Any, VocabularySizes], EncoderDecoder] = models.build
    device: str = "cpu"

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def built(self) -> EncoderDecoder:
        """The model that ``model()`` builds, built once; do not change it."""
        return self.model()

    def model(self, seed: int = 1, sizes: VocabularySizes = JOINT) -> EncoderDecoder:
        """Build a model in eval mode; equal seeds give equal models."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            model = self.builder(self.config, sizes)
            for parameter in model.parameters():  # initial zeros and uniform attention would hide mistakes
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model.eval().to(self.device)


def subject(name: str) -> Subject:
    """Return the subject of a registered model with its defaults, or of a preset, in small sizes."""
    config = models.config_class(name)() if name in models.names() else load_preset(name)
    if not hasattr(config, "shrink"):
        raise UsageError(
            f"{type(config).__name__}, the configuration of {name}, has no shrink(); the conformance suite needs it "
            f"to build the same structure in small sizes"
        )
    return Subject(name, config.shrink())


def subjects() -> tuple[Subject, ...]:
    """Return every registered model and every preset, including those of loaded plugins."""
    return tuple(subject(name) for name in (*models.names(), *preset_names("model", preset_folders())))


def kinds() -> tuple[Subject, ...]:
    """Return ``subjects``, with one subject for all presets that differ only in sizes or dropout probabilities."""
    first: dict[str, Subject] = {}
    for subject in subjects():
        first.setdefault(re.sub(r"dropout': 0\.\d*[1-9]\d*", "", str(to_plain(subject.config))), subject)
    return tuple(first.values())


def load_preset(name: str) -> Any:
    """Return the configuration of a model preset, or of a model with its defaults."""
    if name not in [*models.names(), *preset_names("model", preset_folders())]:
        raise UsageError(
            f"there is no model or preset '{name}'; models: {', '.join(models.names())}; presets of a plugin are known "
            f"after nmt.plugins.load_plugins(FOLDER)"
        )
    return component_from_plain("model", preset("model", name, preset_folders()), origin=f"preset {name}")


TOLERANCE = 1e-4  # of log-probabilities in float32; operators round differently for different shapes


def device_under(model: Decodable) -> torch.device:
    """Return the device of a model's parameters."""
    return next(model.parameters()).device if isinstance(model, torch.nn.Module) else torch.device("cpu")


def toy_batch(model: EncoderDecoder, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Batch:
    """Return random sentences of these lengths, eos included, shortened to the limits of the model; on its device."""
    generator = np.random.default_rng(7)
    longest = model.max_source_length() or max(source_lengths)
    sources = [_sentence(generator, min(length, longest), JOINT.source) for length in source_lengths]
    limits = model.max_target_lengths(torch.tensor([len(source) for source in sources]))
    lengths = target_lengths if limits is None else [min(pair) for pair in zip(target_lengths, limits.tolist())]
    batch = collate(sources, [_sentence(generator, length, JOINT.target) for length in lengths])
    return batch.to(device_under(model))


def single_sentence(batch: Batch, sentence: int) -> Batch:
    """Return a batch of one sentence of a batch."""
    first, last = batch.target_offsets[sentence : sentence + 2].cpu().tolist()
    source = batch.source[sentence, : batch.source_lengths[sentence]]
    sides = [source.cpu().numpy()], [batch.targets[first:last].cpu().numpy()]
    return collate(*sides).to(batch.source.device)


def target_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """Return the log-probability of each target token, by sentence; by teacher forcing."""
    chosen = torch.cat(all_log_probabilities(model, batch)).gather(1, batch.targets[:, None]).squeeze(1)
    return list(torch.split(chosen, batch.target_lengths.cpu().tolist()))


def all_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """Return the log-probabilities [length, V] of all tokens, by sentence; by teacher forcing."""
    with torch.inference_mode():
        scores = model.output.logits(model(batch).hidden).log_softmax(-1)
    return list(torch.split(scores, batch.target_lengths.cpu().tolist()))


def step_scores(model: Decodable, tokens: Tensor, memory: Memory, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """Make one step; return log-probabilities [N, V] and the next state."""
    output = model.step(tokens, memory, state)
    return output.log_probabilities(), output.state


def search_with(
    search: Search, model: Decodable | Engine, source: Tensor, source_lengths: Tensor, **options: Any
) -> list[list[Hypothesis]]:
    """Search for translations of padded ids [B, S]; ``options``: options of ``Sentences``."""
    return search.find(engine_of(model), Sentences.of_tensors(source, source_lengths, **options))


def forced_scores(
    model: Decodable | Engine, source: Tensor, source_lengths: Tensor, targets: Sequence[Tensor]
) -> list[Tensor]:
    """Return the log-probability of each token of ``targets``, by sentence, step by step; targets end in eos."""
    sources = Sentences.of_tensors(source, source_lengths).sources
    scores, _ = score_targets(engine_of(model), sources, [target.cpu().numpy() for target in targets])
    return [torch.from_numpy(of_tokens) for of_tokens in scores]


def ensemble_of(models: Sequence[Decodable], weights: Sequence[float] = ()) -> Engine:
    """Return an ensemble of models as an engine on their device."""
    return EnsembleEngine([engine_of(model) for model in models], weights)


def engine_of(model: Decodable | Engine) -> Engine:
    """Return an engine unchanged, or a model as an engine on its device."""
    return model if isinstance(model, Engine) else ModelEngine(model, device_under(model))


def assert_close(actual: Tensor, expected: Tensor, what: str) -> None:
    """Require differences within the tolerance; -inf equals -inf."""
    difference = (actual - expected).abs().masked_fill(actual == expected, 0.0)
    assert actual.shape == expected.shape, f"{what}: shapes {list(actual.shape)} and {list(expected.shape)}"
    assert bool((difference <= TOLERANCE).all()), f"{what}: they differ by {difference.max().item():.3g}"


def _sentence(generator: np.random.Generator, length: int, vocabulary_size: int) -> npt.NDArray[np.int64]:
    words = generator.integers(len(SPECIALS), vocabulary_size, size=length - 1)
    return np.append(words, EOS)

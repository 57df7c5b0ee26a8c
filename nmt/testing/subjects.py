"""What the conformance suite examines: every registered model, and every preset, in small sizes; on small random batches.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.config.plain import component_from_plain
from nmt.config.presets import preset_names, read_preset
from nmt.data.batch import Batch, collate
from nmt.data.vocabulary import EOS, SPECIALS
from nmt.errors import UsageError
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Memory, VocabularySizes
from nmt.models import models
from nmt.plugins import preset_folders

JOINT = VocabularySizes(source=23, target=23, shared=True)


@dataclass(frozen=True)
class Subject:
    """A small model that can be built again and again."""

    name: str
    config: Any
    builder: Callable[[Any, VocabularySizes], EncoderDecoder] = models.build

    def __str__(self) -> str:
        return self.name

    def model(self, seed: int = 1, sizes: VocabularySizes = JOINT) -> EncoderDecoder:
        """A fresh model in eval mode; equal seeds give equal models."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            model = self.builder(self.config, sizes)
            for parameter in model.parameters():  # where they start, zeros and even distributions hide mistakes
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model.eval()


def subject(name: str) -> Subject:
    """The subject of a registered model (its defaults) or of a preset, shrunk."""
    config = models.config_class(name)() if name in models.names() else load_preset(name)
    if not hasattr(config, "shrink"):
        raise UsageError(
            f"{type(config).__name__}, the configuration of {name}, has no shrink(); the conformance suite needs it "
            f"to build the same structure in small sizes"
        )
    return Subject(name, config.shrink())


def subjects() -> tuple[Subject, ...]:
    """Every registered model and every preset, those of loaded plugins included."""
    return tuple(subject(name) for name in (*models.names(), *preset_names("model", preset_folders())))


def kinds() -> tuple[Subject, ...]:
    """The same, with one subject in place of presets that only differ in sizes or in how much is dropped out."""
    first: dict[str, Subject] = {}
    for one in subjects():
        first.setdefault(re.sub(r"dropout=0\.\d*[1-9]\d*", "dropout=some", repr(one.config)), one)
    return tuple(first.values())


def load_preset(name: str) -> Any:
    """The configuration of a model preset, read without Hydra: its own values over those that it extends."""
    if name not in [*models.names(), *preset_names("model", preset_folders())]:
        raise UsageError(
            f"there is no model or preset '{name}'; models: {', '.join(models.names())}; presets of a plugin are known "
            f"after nmt.plugins.load_plugins(FOLDER)"
        )
    preset = read_preset("model", name, preset_folders())
    return component_from_plain("model", {"name": preset.component, **preset.values}, origin=f"preset {name}")


TOLERANCE = 1e-4  # of log-probabilities in float32; operators round differently for different shapes


def toy_batch(model: EncoderDecoder, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Batch:
    """Random sentences of these lengths (eos included), cut to what the model can read and write."""
    generator = np.random.default_rng(7)
    longest = model.max_source_length() or max(source_lengths)
    sources = [_sentence(generator, min(length, longest), JOINT.source) for length in source_lengths]
    limits = model.max_target_lengths(torch.tensor([len(source) for source in sources]))
    wanted = target_lengths if limits is None else [min(pair) for pair in zip(target_lengths, limits.tolist())]
    return collate(sources, [_sentence(generator, length, JOINT.target) for length in wanted])


def alone(batch: Batch, sentence: int) -> Batch:
    """One sentence of a batch as a batch."""
    first, last = batch.target_offsets[sentence : sentence + 2].tolist()
    source = batch.source[sentence, : batch.source_lengths[sentence]]
    return collate([source.numpy()], [batch.targets[first:last].numpy()])


def target_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """By sentence, the log-probability of each target token, by teacher forcing."""
    every = all_log_probabilities(model, batch)
    chosen = torch.cat(every).gather(1, batch.targets[:, None]).squeeze(1)
    return list(torch.split(chosen, batch.target_lengths.tolist()))


def all_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """By sentence, the log-probabilities [length, V] at each of its target positions, by teacher forcing."""
    with torch.inference_mode():
        scores = model.output.logits(model(batch).hidden).log_softmax(-1)
    return list(torch.split(scores, batch.target_lengths.tolist()))


def step_scores(model: Decodable, tokens: Tensor, memory: Memory, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """One step: log-probabilities [N, V] and the next state."""
    output = model.step(tokens, memory, state)
    return output.log_probabilities(), output.state


def assert_close(found: Tensor, expected: Tensor, what: str) -> None:
    """Both within the tolerance, -inf equal to -inf."""
    difference = (found - expected).abs().masked_fill(found == expected, 0.0)
    assert found.shape == expected.shape, f"{what}: shapes {list(found.shape)} and {list(expected.shape)}"
    assert bool((difference <= TOLERANCE).all()), f"{what}: they differ by {difference.max().item():.3g}"


def _sentence(generator: np.random.Generator, length: int, vocabulary_size: int) -> npt.NDArray[np.int64]:
    words = generator.integers(len(SPECIALS), vocabulary_size, size=length - 1)
    return np.append(words, EOS)

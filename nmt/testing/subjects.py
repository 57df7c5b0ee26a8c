"""What the conformance suite examines: every registered model, and every preset, in small sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

from nmt.config.plain import component_from_plain
from nmt.config.presets import preset_names, read_preset
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.plugins import preset_folders

JOINT = VocabularySizes(source=23, target=23, shared=True)


class ModelConfig(Protocol):
    """What a model's configuration can do beside holding options."""

    def shrink(self) -> Any:
        """The same structure in small sizes."""
        ...


@dataclass(frozen=True)
class Subject:
    """A small model that can be built again and again."""

    name: str
    config: Any
    builder: Callable[[Any, VocabularySizes], EncoderDecoder] = models.build

    def __str__(self) -> str:
        return self.name

    def model(self, seed: int = 1, sizes: VocabularySizes = JOINT) -> EncoderDecoder:
        """A fresh model in eval mode; equal seeds give equal models.

        Every parameter is moved away from where it starts: biases of zero and even distributions hide mistakes.
        """
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            model = self.builder(self.config, sizes)
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        return model.eval()


def subject(name: str) -> Subject:
    """The subject of a registered model (its defaults) or of a preset, shrunk."""
    if name in models.names():
        return Subject(name, _shrunk(models.config_class(name)(), name))
    return Subject(name, _shrunk(load_preset(name), name))


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


def _shrunk(config: Any, name: str) -> Any:
    if not hasattr(config, "shrink"):
        raise UsageError(
            f"{type(config).__name__}, the configuration of {name}, has no shrink(); the conformance suite needs it "
            f"to build the same structure in small sizes"
        )
    return cast(ModelConfig, config).shrink()

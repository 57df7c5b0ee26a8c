"""The commands, and the dataclasses of their options."""

from __future__ import annotations

import importlib

from nmt.config.composing.programs import program_of

# By name, as a newcomer meets them: module in nmt, and class. A start of one command imports one of these modules.
_OPTIONS = {
    "preprocess": "config.preprocessing.PreprocessConfig",
    "train": "config.sections.TrainConfig",
    "average_checkpoints": "config.commands.AverageConfig",
    "generate": "config.commands.GenerateConfig",
    "score": "config.commands.ScoreConfig",
    "serve": "serving.config.ServeConfig",
    "compare": "config.comparing.CompareConfig",
    "visualize": "config.visualizing.VisualizeConfig",
    "align": "config.aligning.AlignConfig",
    "shortlist": "config.commands.ShortlistConfig",
    "monolingual": "config.monolingual.MonolingualConfig",
    "import_": "config.exchange.ImportConfig",
    "export": "config.exchange.ExportConfig",
    "doctor": "config.doctor.DoctorConfig",
}
COMMANDS = tuple(_OPTIONS)


def options_class(command: str) -> type:
    module, _, name = _OPTIONS[command].rpartition(".")
    config_class: type = getattr(importlib.import_module(f"nmt.{module}"), name)
    return config_class


def word_of(command: str) -> str:
    """Return what users type after ``nmt`` to run a command."""
    return program_of(command).removeprefix("nmt-")


def purpose_of(command: str) -> str:
    """Return what a command does, in one sentence without a full stop."""
    text = " ".join((options_class(command).__doc__ or "").split()).removeprefix(f"{program_of(command)}: ")
    return f"{text[:1].upper()}{text[1:].rstrip('.')}"

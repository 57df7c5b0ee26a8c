"""The commands, and the dataclasses of their options."""

from __future__ import annotations

import importlib

# By name: module in nmt, and class. A start of one command imports one of these modules.
_OPTIONS = {
    "align": "config.aligning.AlignConfig",
    "average_checkpoints": "config.commands.AverageConfig",
    "compare": "config.comparing.CompareConfig",
    "doctor": "config.doctor.DoctorConfig",
    "export": "config.exchange.ExportConfig",
    "generate": "config.commands.GenerateConfig",
    "import_": "config.exchange.ImportConfig",
    "preprocess": "config.preprocessing.PreprocessConfig",
    "score": "config.commands.ScoreConfig",
    "serve": "serving.config.ServeConfig",
    "shortlist": "config.commands.ShortlistConfig",
    "train": "config.sections.TrainConfig",
    "visualize": "config.visualizing.VisualizeConfig",
}
COMMANDS = tuple(_OPTIONS)


def options_class(command: str) -> type:
    """Return the dataclass of a command's options."""
    module, _, name = _OPTIONS[command].rpartition(".")
    config_class: type = getattr(importlib.import_module(f"nmt.{module}"), name)
    return config_class

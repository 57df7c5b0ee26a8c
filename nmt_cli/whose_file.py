"""Configurations that were given to another command than theirs. Imported only where there is such a file to look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config.averaging import AverageConfig
from nmt.config.generation import GenerateConfig
from nmt.config.presets import program_of
from nmt.config.scoring import ScoreConfig
from nmt.config.sections import PreprocessConfig, TrainConfig
from nmt.config.shortlist import ShortlistConfig
from nmt.errors import UsageError, closest
from nmt.storage.run_folder import CONFIG

CONFIGURATIONS: Mapping[str, type] = {
    "preprocess": PreprocessConfig,
    "train": TrainConfig,
    "average_checkpoints": AverageConfig,
    "generate": GenerateConfig,
    "shortlist": ShortlistConfig,
    "score": ScoreConfig,
}
# What those who give a run's file to these commands may have meant: the flag that names the run.
_FLAG_OF_RUN = {"generate": "--path", "average_checkpoints": "--inputs"}


def refuse_file_of_another(command: str, path: Path, tree: Mapping[str, Any]) -> None:
    """Refuse the configuration of another command; what only has a wrong option here and there is left to others."""
    owner = _owner(command, tree)
    if owner == command:
        return
    its, here = program_of(owner), program_of(command)
    advice = f"give it to {its}, or give a file that {here} --cfg job printed"
    if owner == "train" and command in _FLAG_OF_RUN:
        run = path.parent if path.name == CONFIG else "RUN"
        advice = f"to use the model of the run, leave --config out and give {_FLAG_OF_RUN[command]} {run}"
    raise UsageError(f"{path} is a configuration of {its}, not of {here}; {advice}")


def _owner(command: str, tree: Mapping[str, Any]) -> str:
    """The one command that knows more of the options than any other does; in doubt ``command``."""
    names = {other: {field.name for field in dataclasses.fields(kind)} for other, kind in CONFIGURATIONS.items()}
    if all(key in names[command] or closest(key, names[command]) for key in tree):
        return command
    known = {other: len(tree.keys() & names[other]) for other in names}
    best = [other for other in known if known[other] == max(known.values())]
    return best[0] if len(best) == 1 else command

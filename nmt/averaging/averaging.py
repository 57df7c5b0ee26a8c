"""The mean of several checkpoints, with one of them in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.averaging.average_scores import Row, compare, find_judge
from nmt.averaging.selection import select
from nmt.config.commands import AverageConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError, OutputError, UsageError
from nmt.models.stored import architecture
from nmt.progress import Watch, in_lines
from nmt.storage.checkpoints import (
    KIND,
    CheckpointInfo,
    StoredCheckpoint,
    read_checkpoint,
    tokenizer_folder,
    write_checkpoint,
)
from nmt.storage.destination import check_destination
from nmt.storage.leftovers import remove_leftovers_of
from nmt.training.setup.differences import differences

logger = logging.getLogger("nmt.average")


@dataclass(frozen=True)
class Average:
    """Where it was written, and its scores after those of its parts (empty: they were not computed)."""

    folder: Path
    scores: list[Row]


def average_checkpoints(config: AverageConfig) -> Average:
    """Average the checkpoints that ``config`` selects and write one without training state."""
    if not config.output:
        raise UsageError("say where to write the average: --output FOLDER")
    output = Path(config.output)
    remove_leftovers_of(output)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)
    paths = select(config)
    _check_apart(output, [*map(Path, config.inputs), *paths])
    _check_vocabularies(paths)
    if len(paths) == 1:
        logger.warning("there is one checkpoint to average: the result is a copy of its parameters")
    logger.info("averaging %d checkpoints: %s", len(paths), ", ".join(path.name for path in paths))
    judge = find_judge(config, paths[-1])
    newest, mean = running_mean(paths)
    rows = [] if judge is None else compare(judge, paths, mean, newest.info.update)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)  # again: reading took a while
    scores = rows[-1].scores if rows else {}
    made = {name: value for name, value in newest.info.made.items() if name == "vocabularies"}
    write_checkpoint(
        output,
        model=mean,
        config=newest.config,
        info=CheckpointInfo(newest.info.update, newest.info.epoch, ("average",), scores, made),
        tokenizer=tokenizer_folder(newest.path),
        overwrite=config.overwrite,
    )
    logger.info("wrote %s", output)
    return Average(output, rows)


def running_mean(paths: Sequence[Path], watch: Watch = in_lines) -> tuple[StoredCheckpoint, dict[str, Tensor]]:
    """The last checkpoint, and the mean of the parameters of all, computed in float64."""
    sums: dict[str, Tensor] = {}
    first: StoredCheckpoint | None = None
    stored: StoredCheckpoint | None = None
    count = watch("added up", "checkpoints", len(paths))
    for path in paths:
        stored = read_checkpoint(path)
        _check_finite(stored)
        first = first or stored
        _check_alike(first, stored)
        for name, tensor in stored.model.items():
            wide = tensor.to(torch.float64) if tensor.is_floating_point() else tensor
            if name not in sums:
                sums[name] = wide
            elif tensor.is_floating_point():
                sums[name] += wide
            elif not torch.equal(sums[name], tensor):
                raise DataError(
                    f"{path}: {name} holds integers that differ from the other checkpoints'; they have no mean"
                )
        count(1)
    assert first is not None and stored is not None
    mean = {
        name: (total / len(paths)).to(first.model[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }
    return stored, mean


def _check_apart(output: Path, inputs: Iterable[Path]) -> None:
    """The output replaces what bears its name: that must not be an input, nor a folder with an input in it."""
    for path in inputs:
        if path.resolve().is_relative_to(output.resolve()):
            raise OutputError(f"writing {output} would replace {path}, which is averaged; choose another --output")


def _check_vocabularies(paths: Sequence[Path]) -> None:
    """Parameters of models with different vocabularies have no mean, even where the sizes agree."""
    first_of = {tokenizer_folder(path).resolve(): path for path in reversed(paths)}
    if len(first_of) == 1:
        return
    digests = {path: LanguagePair.load(folder).digest() for folder, path in first_of.items()}
    for path, digest in digests.items():
        if digest != digests[paths[0]]:
            raise DataError(f"{path} has other vocabularies than {paths[0]}; they cannot be averaged")


def _check_finite(stored: StoredCheckpoint) -> None:
    for name, tensor in stored.model.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{stored.path}: {name} contains NaN or infinity; leave this checkpoint out")


def _check_alike(first: StoredCheckpoint, other: StoredCheckpoint) -> None:
    """Only checkpoints of one architecture have a mean."""
    others = differences(architecture(first.config.get("model")), architecture(other.config.get("model")))
    if others:
        said = "; ".join(f"model.{option}: {change}" for option, change in others.items())
        raise DataError(f"{other.path} holds another architecture than {first.path} ({said}); they cannot be averaged")
    shapes = {name: tensor.shape for name, tensor in first.model.items()}
    for name in sorted(shapes.keys() | other.model.keys()):
        found = other.model[name].shape if name in other.model else None
        if shapes.get(name) != found:
            raise DataError(f"{other.path}: {name} has shape {found}, but {shapes.get(name)} in {first.path}")

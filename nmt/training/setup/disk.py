"""Refuse a new run whose checkpoints do not fit on the disk."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from nmt.config.sections import TrainConfig
from nmt.errors import StorageError
from nmt.optim.parameter_groups import parameter_groups
from nmt.training.loop.learner import Step
from nmt.training.loop.learner_state import checkpoint_bytes
from nmt.training.loop.optimizer_state import training_mode
from nmt.training.setup.parts import build_rule

logger = logging.getLogger("nmt.training")

CHECKPOINTS = 3  # that a run holds at least: the last, the best and the one being written
SPARE = 1.2  # times the size of a checkpoint


def require_disk(folders: Sequence[Path], checkpoint: int) -> None:
    """Refuse a new run whose first checkpoint would fit into none of ``folders``: the run folder, and the fallback folder if
    there is one. Warn if its first few would not fit."""
    disks: dict[int, Path] = {}  # folders on one disk share its space
    for folder in map(_existing, folders):
        disks.setdefault(os.stat(folder).st_dev, folder)
    free = {folder: shutil.disk_usage(folder).free for folder in disks.values()}
    listed = " and ".join(f"{size / 1e9:.2f} GB are free in {folder}" for folder, size in free.items())
    sizes = f"a checkpoint takes {checkpoint / 1e9:.2f} GB, and {listed}"
    advice = "free some space, choose another --save-dir, or name a folder on another disk with --fallback-dir"
    fitting = sum(int(size / max(1.0, SPARE * checkpoint)) for size in free.values())
    if fitting < 1:
        raise StorageError(f"{sizes}; {advice}")
    if fitting < CHECKPOINTS:
        logger.warning(f"{sizes}: {CHECKPOINTS} may not fit; {advice}")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def expected_checkpoint(config: TrainConfig, step: Step) -> int:
    """Return the bytes of a checkpoint of a run that has made no update. Shapes tell; nothing is copied or computed.

    An optimizer that reads numbers from tensors, such as Adafactor, fails here once its state is allocated.
    """
    groups = parameter_groups(step, config.parameters, config.optimizer)
    for group in groups:
        group["params"] = [(name, _without_numbers(parameter)) for name, parameter in group["params"]]
    optimizer = build_rule(config, groups)
    training_mode(optimizer)
    with contextlib.suppress(Exception):  # it may be a plugin's
        optimizer.step()
    return checkpoint_bytes(step, optimizer)


def _without_numbers(parameter: nn.Parameter) -> nn.Parameter:
    """Return a parameter of the same shape, with a gradient, that takes no memory."""
    stand_in = nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device="meta"))
    stand_in.grad = torch.empty_like(stand_in)
    return stand_in

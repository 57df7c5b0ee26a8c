"""What a run is made of, in words and as plain values for its log: the machine, the model, the data."""

from __future__ import annotations

import logging
import os
import platform
from typing import Any

import numpy as np
import torch
from torch import nn

import nmt
from nmt.allocator import VARIABLES
from nmt.config.sections import TrainConfig
from nmt.data.corpus import Split
from nmt.data.vocabulary import Ints
from nmt.models import models
from nmt.training.changed_options import changed_options
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup.datasets import Datasets

logger = logging.getLogger("nmt.training")


def tell(config: TrainConfig, datasets: Datasets, batches: TrainingBatches, model: nn.Module) -> None:
    """Sizes of the model and of the data, in two lines."""
    pair = datasets.pair
    logger.info(
        "%s with %s parameters, vocabularies of %d and %d pieces",
        models.name_of(type(config.model)),
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        len(pair.source.vocabulary),
        len(pair.target.vocabulary),
    )
    logger.info(
        "%s training pairs from %s to %s, %s updates an epoch",
        f"{len(datasets.train):,}",
        pair.source_lang,
        pair.target_lang,
        f"{batches.updates_in_epoch(1):,}",
    )


def describe_run(config: TrainConfig, datasets: Datasets, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """All of it."""
    return {
        "environment": environment(device),
        "model": describe_model(model, models.name_of(type(config.model))),
        "data": describe_data(config, datasets),
        "changed_options": changed_options(config),
    }


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware."""
    facts: dict[str, Any] = {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
    }
    # The speed depends on what the user has decided about memory, see nmt/allocator.py.
    facts |= {name: given for name in VARIABLES if (given := os.environ.get(name))}
    if device.type == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return facts


def describe_model(model: nn.Module, name: str) -> dict[str, Any]:
    """Parameters by part; one that several parts share counts where it stands first."""
    seen: set[int] = set()
    parts: dict[str, int] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            part = path.split(".")[0]
            parts[part] = parts.get(part, 0) + parameter.numel()
    return {"name": name, "parameters": sum(parts.values()), "parts": parts}


def describe_data(config: TrainConfig, datasets: Datasets) -> dict[str, Any]:
    """Sizes and lengths of the splits in use, and what preprocessing reported of them."""
    used = {config.train_subset: datasets.train}
    if datasets.valid is not None:
        used[config.valid_subset] = datasets.valid
    pair = datasets.pair
    return {
        "source": pair.source_lang,
        "target": pair.target_lang,
        "vocabularies": [len(pair.source.vocabulary), len(pair.target.vocabulary)],
        "shared": pair.shared,
        "splits": {name: _describe_split(split) for name, split in used.items()},
        "preprocessing": [
            {"folder": report["folder"], "splits": [s for s in report.get("splits", []) if s.get("split") in used]}
            for report in datasets.reports
        ],
    }


def _describe_split(split: Split) -> dict[str, Any]:
    sides = {"source": split.source_lengths, "target": split.target_lengths}
    described = {side: _describe_lengths(lengths) for side, lengths in sides.items() if lengths is not None}
    return {"sentences": len(split), **described}


def _describe_lengths(lengths: Ints) -> dict[str, Any]:
    """Pieces of a side, without eos."""
    pieces = lengths - 1
    half, most = np.percentile(pieces, [50, 95]).tolist() if len(pieces) else (0.0, 0.0)
    return {
        "pieces": int(pieces.sum()),
        "mean": round(float(pieces.mean()), 1) if len(pieces) else 0.0,
        "median": half,
        "percentile_95": most,
        "longest": int(pieces.max(initial=0)),
    }

"""Describe a run as plain values for its log: the machine, the model, the data."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import nn

import nmt
from nmt.allocator import VARIABLES
from nmt.config.sections import TrainConfig
from nmt.data.batching.mixing import Stage
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import Lengths, length_counts, percentile
from nmt.devices.kinds import device_of
from nmt.models import models
from nmt.scoring import Scorer
from nmt.threads import WAIT_VARIABLES, processor_name
from nmt.training.checkpoints.fingerprint import changed_options
from nmt.training.setup.datasets import Datasets, stages_of


def describe_run(
    config: TrainConfig, datasets: Datasets, model: nn.Module, device: torch.device, scorers: Mapping[str, Scorer]
) -> dict[str, Any]:
    return {
        "environment": environment(device),
        "model": describe_model(model, models.name_of(type(config.model))),
        "data": describe_data(config, datasets),
        "changed_options": changed_options(config),
        "lower_is_better": [name for name, scorer in scorers.items() if not scorer.higher_is_better],
    }


def environment(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "nmt": nmt.__version__,
        "torch": torch.__version__,
        "sacrebleu": metadata.version("sacrebleu"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processor": processor_name(),
        "processors": os.cpu_count(),
    }
    # The speed depends on these too, see nmt/allocator.py and nmt/threads.py.
    facts |= {name: value for name in (*VARIABLES, *WAIT_VARIABLES) if (value := os.environ.get(name))}
    return facts | device_of(device).facts()


def describe_model(model: nn.Module, name: str) -> dict[str, Any]:
    """Return the parameters by part; a shared parameter counts for the first of its parts."""
    parts: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        parts[path.split(".")[0]] += parameter.numel()
    return {"name": name, "parameters": parts.total(), "parts": dict(parts)}


def describe_stages(folders: Sequence[str], stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Return, for each stage of training and each corpus, its pairs and the number of them in an epoch."""
    described = []
    for stage in stages:
        unit, number = ("epoch", stage.from_epoch) if stage.from_epoch else ("update", stage.from_update or 1)
        facts: dict[str, Any] = {"from": f"{unit} {number}", "mixture": stage.name, "corpora": []}
        if stage.mixture is not None:
            for folder, size, count in zip(folders, stage.mixture.sizes, stage.mixture.counts):
                facts["corpora"].append({"folder": folder, "pairs": size, "in_epoch": count})
        described.append(facts)
    return described


def describe_data(config: TrainConfig, datasets: Datasets) -> dict[str, Any]:
    """Return sizes and lengths of the splits in use, and the reports of preprocessing about them."""
    used = {config.train_subset: datasets.train}
    if datasets.valid is not None:
        used[config.valid_subset] = datasets.valid
    pair = datasets.pair
    return {
        "source": pair.source_lang,
        "target": pair.target_lang,
        **({"directions": dict(datasets.directions)} if len(datasets.directions) > 1 else {}),
        "vocabularies": [len(pair.source.vocabulary), len(pair.target.vocabulary)],
        "shared": pair.shared,
        "splits": {name: {"sentences": len(split), **_describe_sides(split)} for name, split in used.items()},
        "stages": describe_stages(datasets.folders, stages_of(config, datasets)) if config.sampling.is_on else [],
        "preprocessing": [
            {"folder": report["folder"], "splits": [s for s in report.get("splits", []) if s.get("split") in used]}
            for report in datasets.reports
        ],
    }


def _describe_sides(split: Split) -> dict[str, Any]:
    sides = {"source": split.source_lengths, "target": split.target_lengths}
    return {side: _describe_lengths(lengths) for side, lengths in sides.items() if lengths is not None}


def _describe_lengths(lengths: Lengths) -> dict[str, Any]:
    """Return statistics of the tokens of a side, without eos."""
    counts = length_counts(lengths)[1:]  # sentences with 0, 1, 2 ... tokens without eos
    sentences, pieces = int(counts.sum()), int(counts @ np.arange(len(counts)))
    return {
        "pieces": pieces,
        "mean": round(pieces / sentences, 1) if sentences else 0.0,
        "median": percentile(counts, 50),
        "percentile_95": percentile(counts, 95),
        "longest": max(0, len(counts) - 1),
    }

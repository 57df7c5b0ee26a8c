"""What a run is made of and how long it is, in words and as plain values for its log: the machine, the model, the data."""

from __future__ import annotations

import logging
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
from nmt.config.sections import DEFAULT_MAX_UPDATE, BatchingConfig, TrainConfig
from nmt.data.corpus import Split
from nmt.data.lengths import Lengths, length_counts
from nmt.data.mixing import Stage
from nmt.data.vocabulary import Ints
from nmt.devices import processor_name
from nmt.models import models
from nmt.optim import default_warmup
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup.datasets import Datasets, stages_of
from nmt.training.setup.options import changed_options

logger = logging.getLogger("nmt.training")

# What is planned to know the length of a run beforehand: some ten seconds at a microsecond a sentence.
MOST_EPOCHS, MOST_SENTENCES = 1000, 10_000_000
FAR = 0.1  # of the size of an update that was asked for
MOST_DRAWN = 100_000  # sentences whose text is drawn for that: some ten seconds


def tell(config: TrainConfig, datasets: Datasets, batches: TrainingBatches, model: nn.Module) -> None:
    """Sizes of the model and of the data, in two lines."""
    name, size = models.name_of(type(config.model)), sum(parameter.numel() for parameter in model.parameters())
    pair, pairs, updates = datasets.pair, len(datasets.train), batches.updates_in_epoch(1)
    source, target = len(pair.source.vocabulary), len(pair.target.vocabulary)
    logger.info(f"{name} with {size:,} parameters, vocabularies of {source} and {target} pieces")
    logger.info(f"{pairs:,} training pairs from {pair.source_lang} to {pair.target_lang}, {updates:,} updates an epoch")
    if config.sampling.is_on:
        for number, facts in enumerate(describe_stages(config, batches.stages), start=1):
            logger.info("stage %d of training, from %s on: %s", number, facts["from"], _mixed(facts))
    if datasets.variation is not None:
        by = f"{count} readers" if (count := batches.readers.count) else "the training process"
        logger.info(f"their text differs from epoch to epoch, drawn by {by}")


def update_in_words(batching: BatchingConfig, processes: int) -> str:
    """What an update of a given size is made of, and how to come nearer to that size."""
    given, size, count = batching.tokens_per_update, batching.largest, batching.accumulation(processes)
    assert given is not None and size is not None
    made, whose = size * count * processes, "1 process" if processes == 1 else f"each of {processes} processes"
    batches = "1 batch" if count == 1 else f"{count} batches"
    found = f"{batches} of up to {size:,} tokens on {whose}: {made:,} tokens"
    best = given // (count * processes)
    if best in (0, size):  # 0: the processes make more already
        return found
    return (
        f"{found}, the nearest to --tokens-per-update {given}; with batches of up to {best:,} tokens it would be "
        f"{best * count * processes:,}"
    )


def tell_update(batching: BatchingConfig, processes: int) -> None:
    """A warning if it is far from what was asked for."""
    if batching.tokens_per_update is None or batching.largest is None:
        return
    made = batching.largest * batching.accumulation(processes) * processes
    is_far = abs(made - batching.tokens_per_update) > FAR * batching.tokens_per_update
    logger.log(logging.WARNING if is_far else logging.INFO, "an update is %s", update_in_words(batching, processes))


def tell_limits(config: TrainConfig) -> None:
    """Say in the log what nobody asked for: the default limit, a run without an end, a warm-up for want of a length."""
    limits = config.training
    patience = config.validation.patience
    if limits.takes_default_limit:
        earlier = "" if patience is None else f", or before that by --patience {patience}"
        logger.info(
            f"no limit given: training ends after {DEFAULT_MAX_UPDATE:,} updates{earlier}; --max-update, --max-epoch or "
            f"--stop-time-hours sets another, --max-update 0 none"
        )
    elif limits.last_update is None and limits.max_epoch is None:
        if limits.stop_time_hours is None:
            end = "when it is stopped" if patience is None else f"by --patience {patience}, or when it is stopped"
            logger.info(f"training has no limit and ends {end}; Ctrl-C and SIGTERM save first")
        if config.scheduler.warmup_updates is None:
            logger.info(
                f"how many updates the run will have is not known: the warm-up takes {default_warmup(None):,} of them; "
                f"--warmup-updates sets another number"
            )


def number_of_updates(config: TrainConfig, batches: TrainingBatches, datasets: Datasets) -> int | None:
    """How many updates the limits allow. Epochs have the same length, except with a sort window, or where corpora are mixed
    or text is changed: then they are counted, and what would take long is taken from the mean of those before, which hardly
    differ in a large corpus. Where each epoch is drawn before it is planned, that is soon."""
    limits, batching = config.training, config.batching
    last = limits.last_update
    if limits.max_epoch is None or (batching.exceeded(datasets.longest) and not batching.skip_long):
        return last
    counted = 1
    changed = bool(config.variation.augment) and config.variation.headroom is not None
    if batching.sort_window is not None or config.sampling.is_on or changed:
        drawn = config.variation.is_on and config.variation.headroom is None
        most = MOST_DRAWN if drawn else MOST_SENTENCES
        counted = min(limits.max_epoch, MOST_EPOCHS, max(1, most // len(datasets.train)))
    made = 0
    for epoch in range(1, counted + 1):
        made += batches.updates_in_epoch(epoch)
        if last is not None and made >= last:
            return last
    by_epochs = made * limits.max_epoch // counted
    return by_epochs if last is None else min(by_epochs, last)


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
        "sacrebleu": metadata.version("sacrebleu"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": str(device),
        "threads": torch.get_num_threads(),
        "processor": processor_name(),
        "processors": os.cpu_count(),
    }
    # The speed depends on what the user has decided about memory, see nmt/allocator.py.
    facts |= {name: given for name in VARIABLES if (given := os.environ.get(name))}
    if device.type == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    return facts


def describe_model(model: nn.Module, name: str) -> dict[str, Any]:
    """Parameters by part; one that several parts share counts where it stands first."""
    parts: Counter[str] = Counter()
    for path, parameter in model.named_parameters():
        parts[path.split(".")[0]] += parameter.numel()
    return {"name": name, "parameters": parts.total(), "parts": dict(parts)}


def describe_stages(config: TrainConfig, stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """What each stage of training mixes: of each corpus its pairs, and how many of them an epoch has."""
    described = []
    for stage in stages:
        unit, number = ("epoch", stage.from_epoch) if stage.from_epoch else ("update", stage.from_update or 1)
        facts: dict[str, Any] = {"from": f"{unit} {number}", "mixture": stage.name, "corpora": []}
        if stage.mixture is not None:
            for folder, size, count in zip(config.data, stage.mixture.sizes, stage.mixture.counts):
                facts["corpora"].append({"folder": folder, "pairs": size, "in_epoch": count})
        described.append(facts)
    return described


def _mixed(facts: Mapping[str, Any]) -> str:
    """A stage in words."""
    total = max(1, sum(corpus["in_epoch"] for corpus in facts["corpora"]))
    corpora = [
        f"{corpus['folder']} {corpus['in_epoch']:,} pairs an epoch ({100 * corpus['in_epoch'] / total:.1f} %, "
        f"{corpus['in_epoch'] / max(1, corpus['pairs']):.2f} times its {corpus['pairs']:,})"
        for corpus in facts["corpora"]
    ]
    return "; ".join([facts["mixture"], *corpora])


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
        "stages": describe_stages(config, stages_of(config, datasets)) if config.sampling.is_on else [],
        "preprocessing": [
            {"folder": report["folder"], "splits": [s for s in report.get("splits", []) if s.get("split") in used]}
            for report in datasets.reports
        ],
    }


def _describe_split(split: Split) -> dict[str, Any]:
    sides = {"source": split.source_lengths, "target": split.target_lengths}
    described = {side: _describe_lengths(lengths) for side, lengths in sides.items() if lengths is not None}
    return {"sentences": len(split), **described}


def _describe_lengths(lengths: Lengths) -> dict[str, Any]:
    """Pieces of a side, without eos."""
    counts = length_counts(lengths)[1:]  # sentences with 0, 1, 2 ... pieces beside it
    sentences, pieces = int(counts.sum()), int(counts @ np.arange(len(counts)))
    return {
        "pieces": pieces,
        "mean": round(pieces / sentences, 1) if sentences else 0.0,
        "median": _percentile(counts, 50),
        "percentile_95": _percentile(counts, 95),
        "longest": max(0, len(counts) - 1),
    }


def _percentile(counts: Ints, percent: int) -> float:
    """Of sorted numbers of which so many are 0, 1, 2 ...; between two of them in proportion."""
    up_to = np.cumsum(counts)
    if not len(up_to):
        return 0.0
    rank, rest = divmod(percent * (int(up_to[-1]) - 1), 100)
    below, above = np.searchsorted(up_to, [rank, rank + 1], side="right").tolist()
    return float(below if rest == 0 else below + (above - below) * rest / 100)

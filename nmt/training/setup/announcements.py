"""What the log says at the start of a run, and the rows of ``--dry-run``: sizes, limits, time and memory in words."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from nmt.config.composing.composition import preset
from nmt.config.composing.presets import preset_names
from nmt.config.sections import DEFAULT_MAX_UPDATE, BatchingConfig, TrainConfig, TrainingConfig
from nmt.errors import quantity
from nmt.models import models
from nmt.optim import Horizon
from nmt.plugins import preset_folders
from nmt.training.loop.batches import TrainingBatches
from nmt.training.loop.learner import SMALLER_BATCHES
from nmt.training.setup.datasets import Datasets
from nmt.training.setup.description import describe_stages
from nmt.training.setup.forecast import EpochSizes, Forecast

logger = logging.getLogger("nmt.training")

FAR = 0.1  # share of ``batching.tokens_per_update`` beyond which an update is reported as far from it
LONG = 24.0  # hours that are too many for a CPU
TOO_LARGE = f"the largest micro-batches will not fit; {SMALLER_BATCHES}"


def tell_sizes(config: TrainConfig, datasets: Datasets, batches: TrainingBatches, model: nn.Module) -> None:
    """Log the sizes of the model and of the data."""
    name, size = models.name_of(type(config.model)), sum(parameter.numel() for parameter in model.parameters())
    pair, updates = datasets.pair, batches.updates_in_epoch(1)
    source, target = len(pair.source.vocabulary), len(pair.target.vocabulary)
    logger.info(f"{name} with {size:,} parameters, vocabularies of {source:,} and {target:,} tokens")
    logger.info(f"{pairs_in_words(datasets, 'training pair')}, {quantity(updates, 'update')} an epoch")
    if config.sampling.is_on:
        for number, facts in enumerate(describe_stages(datasets.folders, batches.stages), start=1):
            logger.info("stage %d of training, from %s on: %s", number, facts["from"], _mixed(facts))
    if datasets.variation is not None:
        count = batches.readers.count
        who = quantity(count, "reader") if count else "the training process"
        logger.info(f"{who} {'vary' if count > 1 else 'varies'} the training text in each epoch")


def pairs_in_words(datasets: Datasets, unit: str) -> str:
    """Return the number of training pairs and their direction, or the numbers of all directions."""
    pairs = quantity(len(datasets.train), unit)
    if len(datasets.directions) < 2:
        return f"{pairs} from {datasets.pair.source_lang} to {datasets.pair.target_lang}"
    listed = ", ".join(f"{name} {count:,}" for name, count in datasets.directions.items())
    return f"{pairs} in {len(datasets.directions)} directions ({listed})"


def update_in_words(batching: BatchingConfig, processes: int) -> str:
    """Return the micro-batches of an update of a given size, and how to come nearer to that size."""
    target, size, count = batching.tokens_per_update, batching.largest, batching.accumulation(processes)
    assert target is not None and size is not None
    made, whose = size * count * processes, "1 process" if processes == 1 else f"each of {processes} processes"
    batches = quantity(count, "micro-batch", "micro-batches")
    made_of = f"{batches} of up to {size:,} tokens on {whose}: {made:,} tokens"
    best = target // (count * processes)
    if best in (0, size):  # 0: the processes make more already
        return made_of
    return (
        f"{made_of}, the closest to --tokens-per-update {target}; with micro-batches of up to {best:,} tokens it would "
        f"be {best * count * processes:,}"
    )


def tell_update(batching: BatchingConfig, processes: int) -> None:
    """Log the size of an update; warn if it is far from ``batching.tokens_per_update``."""
    if batching.tokens_per_update is None or batching.largest is None:
        return
    made = batching.largest * batching.accumulation(processes) * processes
    is_far = abs(made - batching.tokens_per_update) > FAR * batching.tokens_per_update
    logger.log(logging.WARNING if is_far else logging.INFO, "an update is %s", update_in_words(batching, processes))


def tell_limits(config: TrainConfig) -> None:
    """Log defaults that take effect: the limit, a run without an end, a warmup for a run of unknown length."""
    limits = config.training
    patience = config.validation.patience
    if limits.takes_default_limit:
        earlier = "" if patience is None else f", or earlier by --patience {patience}"
        logger.info(
            f"no limit is given: training ends after {DEFAULT_MAX_UPDATE:,} updates{earlier}; set another limit with "
            f"--max-update, --max-epoch or --stop-time-hours, or none with --max-update 0"
        )
    elif limits.last_update is None and limits.max_epoch is None:
        if limits.stop_time_hours is None:
            end = "when it is stopped" if patience is None else f"by --patience {patience}, or when it is stopped"
            logger.info(f"training has no limit and ends {end}; Ctrl-C and SIGTERM save first")
        if config.scheduler.warmup_updates is None:
            warmup = config.scheduler.warmup_of_run(Horizon(None, 1))
            logger.info(
                f"the number of updates is unknown: the warmup takes {warmup:,} updates; --warmup-updates sets another "
                f"number"
            )


def tell_forecast(config: TrainConfig, forecast: Forecast, left: int | None, device: torch.device) -> None:
    """Log the forecast. ``left``: updates until the end of the run; None: unknown."""
    assert forecast.seconds is not None, "passes were timed"
    end = end_in_words(forecast.seconds, config.training, left)
    where = f"{device} with {quantity(torch.get_num_threads(), 'thread')}" if device.type == "cpu" else str(device)
    logger.info(
        f"forecast on {where}, at its current load: {end}; {forecast.memory / 1e9:.1f} GB of memory, "
        f"{forecast.checkpoint / 1e9:.2f} GB for each checkpoint"
    )
    limits = [config.training.stop_time_hours, None if left is None else left * forecast.seconds / 3600]
    hours = min((limit for limit in limits if limit is not None), default=0.0)
    if device.type == "cpu" and hours > LONG:
        smaller = _smaller_preset(config)
        advice = "" if smaller is None else f"choose a smaller model (--arch {smaller}), "
        logger.warning(
            f"training takes more than a day on this CPU; {advice}limit the run (--max-epoch, --stop-time-hours), or use a "
            f"GPU"
        )
    if forecast.room is not None and forecast.memory > forecast.room:
        needed, room = f"{forecast.memory / 1e9:.1f} GB", f"{forecast.room / 1e9:.1f} GB"
        logger.warning(f"training may need {needed} of memory, but the process may use only {room}; {SMALLER_BATCHES}")


def dry_run_in_words(
    epoch: EpochSizes,
    forecast: Forecast,
    *,
    model: str,
    data: str,
    limits: TrainingConfig,
    max_update: int | None,
    made_of: str | None = None,
) -> dict[str, str]:
    """Return the rows of ``--dry-run``. ``made_of``: the micro-batches of an update whose size is an option."""
    batches, pieces = epoch.batches, sum(epoch.target_pieces)
    pairs = sum(batch.pairs for batch in batches)
    mean, padding = f"{pairs / len(batches):.1f}", f"{epoch.padding:.1%}"
    rows = {
        "model": model,
        "data": data,
        "an epoch": ", ".join(map(quantity, (len(epoch.updates), pairs, pieces), ("update", "pair", "target token"))),
        "micro-batches": f"{len(batches):,}, on average of {mean} pairs; padding is {padding}",
        "the largest": str(epoch.largest),
        "memory": _memory_in_words(forecast),
    }
    if made_of is not None:
        rows["in an update"] = made_of
    if forecast.seconds is not None:
        rate = pieces / len(epoch.updates) / forecast.seconds
        rows["an update"] = f"{forecast.seconds:.3f} seconds, {rate:,.0f} target tokens a second"
        rows["to the end"] = end_in_words(forecast.seconds, limits, max_update)
    return rows


def _memory_in_words(forecast: Forecast) -> str:
    needed = f"{forecast.memory / 1e9:.2f} GB a process"
    room = "" if forecast.room is None else f", of {forecast.room / 1e9:.1f} GB available"
    return needed + room if forecast.is_measured else f"{needed} (forecast){room}: {TOO_LARGE}"


def end_in_words(seconds: float, limits: TrainingConfig, max_update: int | None) -> str:
    """Return updates and time until the first limit is met. ``seconds``: of an update; ``max_update``: None if unknown."""
    most, hours = limits.stop_time_hours, None if max_update is None else max_update * seconds / 3600
    if most is not None and (hours is None or most < hours):
        return f"about {most * 3600 / seconds:,.0f} updates in the limit of {most:g} hours"
    if max_update is None or hours is None:
        return "no limit is given; 1,000 updates take " + _hours(1000 * seconds / 3600)
    return f"{quantity(max_update, 'update')} in {_hours(hours)}, without validations"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


def _mixed(facts: Mapping[str, Any]) -> str:
    """Return a stage in words."""
    total = max(1, sum(corpus["in_epoch"] for corpus in facts["corpora"]))
    corpora = [
        f"{corpus['folder']} {corpus['in_epoch']:,} pairs an epoch ({100 * corpus['in_epoch'] / total:.1f} %, "
        f"{corpus['in_epoch'] / max(1, corpus['pairs']):.2f} times its {corpus['pairs']:,})"
        for corpus in facts["corpora"]
    ]
    return "; ".join([facts["mixture"], *corpora])


def _smaller_preset(config: TrainConfig) -> str | None:
    """Return the tiny preset of the chosen architecture; None if it does not exist or is already chosen."""
    component = models.name_of(type(config.model))
    name = f"{component}_tiny"
    if name not in preset_names("model", preset_folders()):
        return None
    stated = preset("model", name, preset_folders())
    same = all(getattr(config.model, key, None) == value for key, value in stated.items() if key != "name")
    return None if same else name

"""Choose the batch size for ``--max-tokens auto``: the largest batches that fit into memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nmt.config.sections import AUTO, BatchingConfig, CheckpointConfig, TrainConfig
from nmt.data.batching.plan import plan_batches, split_batch
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import LongerSide
from nmt.data.vocabulary import Ints
from nmt.devices import is_shortage
from nmt.devices.kinds import device_of
from nmt.distributed.world import World
from nmt.errors import DeviceError, NMTError
from nmt.reporting.resources import give_back, most_memory, peak_memory
from nmt.storage.run_folder import checkpoints_in, read_config
from nmt.training.checkpoints.store import fallback_folder
from nmt.training.loop.learner import explained_shortage
from nmt.training.setup.contradictions import check
from nmt.training.setup.datasets import Datasets, sides
from nmt.training.setup.forecast import BatchSize, Trial, costliest
from nmt.training.setup.parts import build_arithmetic, build_step, new_model

logger = logging.getLogger("nmt.training")

SIZES = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)  # 25,000 is the paper's
LEAST_UPDATES = 50  # of an epoch: batches that leave fewer would train worse, even if they fit
MARGIN = 1.3  # factor of a forecast
SHARE_OF_GPU = 0.92  # of its memory that a trial may reserve

Attempt = Callable[[int], None]  # forward and backward passes of the largest batches of a size


def decide_token_budget(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> TrainConfig:
    """Return the configuration with a number instead of ``auto``: that of the run so far, or the largest that fits."""
    if config.batching.max_tokens != AUTO:
        return config
    check(config, datasets.longest, config.training.last_update)
    stored = world.on_main(lambda: _size_of_run(config.checkpoint, config.batching))
    size = min(world.gather(_largest(config, datasets, device, world) if stored is None else stored))
    give_back(device)  # the memory of the trial
    logger.info("micro-batches of up to %d tokens (%s)", size, "as before" if stored else "found by --max-tokens auto")
    return _with_size(config, size)


def candidates(split: Split, longest: int, batches_in_update: int) -> list[int]:
    """Return the sizes to try, smallest first: no sentence is too long, and an epoch has enough updates."""
    most = LongerSide(sides(split)).sum() // (LEAST_UPDATES * batches_in_update)
    fitting = [size for size in SIZES if size >= longest] or [longest]
    return [size for size in fitting if size <= most] or fitting[:1]


def divisors(tokens_per_update: int, longest: int, processes: int) -> list[int]:
    """Return the sizes that divide an update of a given size, smallest first. Neighbors differ by about a quarter, except
    for the largest."""
    of_each, batches, sizes = tokens_per_update // processes, 1, list[int]()
    least = max(1, longest, min(SIZES[0], of_each // 4))
    while of_each // batches >= least:
        sizes.append(of_each // batches)
        batches = max(batches + 1, batches * 4 // 3)
    return sizes[::-1] or [longest]


def largest_by_trial(
    sizes: Sequence[int], attempt: Attempt, reserved: Callable[[], float], device: torch.device
) -> int:
    """Try the largest size first: on a GPU a failed trial costs nothing. ``reserved``: the share of its memory in use."""
    for size in reversed(sizes):
        try:
            attempt(size)
            if reserved() <= SHARE_OF_GPU:
                return size
        except Exception as error:  # its traceback holds the trial's tensors, so memory is given back after this block
            if not is_shortage(error):
                raise
        logger.info("micro-batches of %d tokens do not fit", size)
        give_back(device)
    raise DeviceError(
        f"even micro-batches of {sizes[0]} tokens do not fit into the memory of the device; choose a smaller model, or "
        f"skip long sentences with --max-tokens and --skip-long"
    )


def largest_by_forecast(
    sizes: Sequence[int], attempt: Attempt, peak: Callable[[], int], room: Callable[[], int | None], reserve: int = 0
) -> int:
    """Forecast the memory of large batches from small ones: on a CPU a failed trial would end the process.

    ``peak``: the most memory of the trials so far; ``room``: bytes that the process may hold; ``reserve``: bytes that
    training takes and a trial does not.
    """
    smallest = sizes[0]
    if len(sizes) == 1:
        return smallest
    few = sorted({min(times * smallest, sizes[-1]) for times in (1, 2, 4)})
    tried = []
    for size in few:
        attempt(size)
        tried.append((size, peak()))
    slope = max((more - less) / (large - small) for (small, less), (large, more) in zip(tried, tried[1:]))
    (size_now, held), limit = tried[-1], room()
    if limit is None or tried[1][1] <= tried[0][1]:  # a peak that did not rise was that of something earlier
        logger.warning(
            "this system cannot measure the memory of micro-batches; --max-tokens auto uses the smallest, %d tokens",
            smallest,
        )
        return smallest
    forecast = {size: MARGIN * (held + slope * (size - size_now)) + reserve for size in sizes}
    chosen = max((size for size in sizes if forecast[size] <= limit), default=smallest)
    logger.info(
        "micro-batches of %d tokens should take %.1f GB, of %.1f GB available",
        chosen,
        forecast[chosen] / 1e9,
        limit / 1e9,
    )
    return chosen


def largest_batches(split: Split, options: BatchingConfig, seed: int) -> list[Ints]:
    """Return the batches of the first epoch that may take most memory."""
    plan: Sequence[Ints] = plan_batches(split.source_lengths, split.target_lengths, options, seed)
    source, target = sides(split)
    if options.max_padding is not None:
        plan = [part for batch in plan for part in split_batch(batch, (source, target), options.max_padding)]
    return [plan[number] for number in costliest([BatchSize.of(source[batch], target[batch]) for batch in plan])]


def _largest(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> int:
    """Return the largest size that fits on this rank."""
    logger.info("trying sizes of micro-batches")
    longest, batching = max(datasets.longest), config.batching
    if batching.tokens_per_update is None:
        sizes = candidates(datasets.train, longest, batching.update_freq * world.size)
    else:
        sizes = divisors(batching.tokens_per_update, longest, world.size)
    least = _with_size(config, sizes[0])
    with explained_shortage("with micro-batches of one sentence", "the model is too large for this device"):
        model = new_model(least, datasets)
        arithmetic = build_arithmetic(least, datasets, model, device, before=None)
        trial = Trial(least, build_step(least, datasets, model, device, World()), datasets.train, arithmetic)

    def attempt(size: int) -> None:
        trial.update(largest_batches(datasets.train, _with_size(config, size).batching, config.seed))

    give_back(device)
    share = device_of(device).reserved_share
    if share() is not None:
        return largest_by_trial(sizes, attempt, lambda: share() or 0.0, device)
    copied = trial.checkpoint if config.checkpoint.asynchronous and world.main else 0  # while a checkpoint is written
    return largest_by_forecast(sizes, attempt, lambda: peak_memory(device), lambda: most_memory(device), copied)


def _size_of_run(run: CheckpointConfig, options: BatchingConfig) -> int | None:
    """Return the size that the newest checkpoint of the run was trained with, if it counted padding in the same way."""
    folders = filter(None, (Path(run.save_dir), fallback_folder(run)))
    for path in reversed(checkpoints_in(*folders)):
        try:
            batching: Mapping[str, Any] = read_config(path)["batching"]
        except (NMTError, KeyError):
            continue  # damaged; restoring will say so
        if isinstance(batching.get("max_tokens"), int):
            return int(batching["max_tokens"]) if batching["count_padding"] == options.count_padding else None
    return None


def _with_size(config: TrainConfig, size: int) -> TrainConfig:
    return replace(config, batching=replace(config.batching, max_tokens=size))

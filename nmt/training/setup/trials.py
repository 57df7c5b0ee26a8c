"""What is found out before training begins, by trying: how large batches may be, and what a target token costs.

``--max-tokens auto`` is the largest batches that fit into memory. The cost in floating-point operations is found twice.
Estimate: "Attention Is All You Need" (Vaswani et al. 2017), section 6.1: training time x number of devices x sustained
single-precision rate of the device; the rates are those of its footnote 5.
Count: operations of matrix products, convolutions and attention, forward and backward, on a few sentences; per target
token they are nearly the same for all the others. A multiplication and an addition are two. Element-wise work and the
optimizer are left out, as is usual.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.config.sections import AUTO, BatchingConfig, TrainConfig
from nmt.data.batching import Indices, parts_of, plan_batches
from nmt.data.corpus import Split
from nmt.data.lengths import LongerSide
from nmt.devices import is_shortage
from nmt.distributed.world import World
from nmt.errors import DeviceError, NMTError
from nmt.interface import EncoderDecoder
from nmt.models.transformer.attention_kernels import knows_flat_batches
from nmt.reporting.resources import give_back, most_memory, peak_memory
from nmt.reporting.run_record import Cost
from nmt.storage.run_folder import checkpoints_in, read_config
from nmt.training.checkpoints import optimizer_state
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Arithmetic, Step, explained_shortage, seed_torch
from nmt.training.setup.datasets import Datasets, sides
from nmt.training.setup.options import check
from nmt.training.setup.parts import build_arithmetic, build_model, build_optimizer, build_step, save_memory

logger = logging.getLogger("nmt.training")

SIZES = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768)  # 25,000 is the paper's
LEAST_UPDATES = 50  # of an epoch: batches that leave fewer would train worse, fit as they may
MARGIN = 1.3  # what a forecast is multiplied with
SHARE_OF_GPU = 0.92  # of its memory that a trial may reserve

_SEED, _COST_SEED = 2**32 - 3, 2**32 - 2  # stand where an update has its number

SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # footnote 5

_GROUPS, _GROUP_SIZE = 4, 4  # sentences that the count looks at
MOST_LOOKED_AT = 10**6  # lengths among which they are chosen

Shape = Sequence[int]
Trial = Callable[[int], None]  # forward and backward passes of the largest batches of a size


def decide_token_budget(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> TrainConfig:
    """The configuration with a number in place of ``auto``; that of the run so far, if there is one."""
    if config.batching.max_tokens != AUTO:
        return config
    check(config, datasets.longest, config.training.last_update)
    stored = world.on_main(lambda: _of_the_run(Path(config.checkpoint.save_dir), config.batching))
    size = min(world.gather(_found(config, datasets, device, world) if stored is None else stored))
    give_back()  # what was tried is no part of the run
    logger.info("batches of up to %d tokens (%s)", size, "as before" if stored else "found by --max-tokens auto")
    return _with_size(config, size)


def candidates(split: Split, longest: int, batches_in_update: int) -> list[int]:
    """The sizes that come into question, smallest first: no sentence is too long, and an epoch has enough updates."""
    most = LongerSide(sides(split)).sum() // (LEAST_UPDATES * batches_in_update)
    fitting = [size for size in SIZES if size >= longest] or [longest]
    return [size for size in fitting if size <= most] or fitting[:1]


def shares(tokens_per_update: int, longest: int, processes: int) -> list[int]:
    """The sizes that divide an update of a given size, smallest first: what fits decides into how many batches. Of small
    ones each is about three quarters of the next."""
    of_each, parts, sizes = tokens_per_update // processes, 1, list[int]()
    least = max(1, longest, min(SIZES[0], of_each // 4))
    while of_each // parts >= least:
        sizes.append(of_each // parts)
        parts = max(parts + 1, parts * 4 // 3)
    return sizes[::-1] or [longest]


def largest_by_trial(sizes: Sequence[int], attempt: Trial, reserved: Callable[[], float]) -> int:
    """For a GPU, where a failed trial costs nothing: the largest first. ``reserved``: the share of its memory in use."""
    for size in reversed(sizes):
        try:
            attempt(size)
            if reserved() <= SHARE_OF_GPU:
                return size
        except Exception as error:  # its traceback holds the trial's tensors, so memory is given back after this block
            if not is_shortage(error):
                raise
        logger.info("batches of %d tokens do not fit", size)
        give_back()
    raise DeviceError(
        f"even batches of {sizes[0]} tokens do not fit into the memory of the device; choose a smaller model, or "
        f"leave out long sentences with --max-tokens and --skip-long"
    )


def largest_by_forecast(
    sizes: Sequence[int], attempt: Trial, peak: Callable[[], int], room: Callable[[], int | None], beside: int = 0
) -> int:
    """For a CPU, where a failed trial would end the process: small batches tell what large ones will take. ``peak``: the
    most memory of the trials so far; ``room``: what the process may hold in all; ``beside``: the bytes of it that training
    takes and a trial does not."""
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
        logger.warning("how much memory batches take cannot be told on this system: they stay small")
        return smallest
    forecast = {size: MARGIN * (held + slope * (size - size_now)) + beside for size in sizes}
    chosen = max((size for size in sizes if forecast[size] <= limit), default=smallest)
    logger.info("batches of %d tokens should take %.1f GB, of %.1f GB", chosen, forecast[chosen] / 1e9, limit / 1e9)
    return chosen


def largest_batches(split: Split, options: BatchingConfig, seed: int) -> list[Indices]:
    """Of the first epoch's batches those that take the most memory: with the most pieces, with and without padding, with
    the most sentences, or the longest ones."""
    plan: Sequence[Indices] = plan_batches(split.source_lengths, split.target_lengths, options, seed)
    source, target = sides(split)
    if options.max_padding is not None:
        plan = [part for batch in plan for part in parts_of(batch, (source, target), options.max_padding)]
    longest = [(int(source[batch].max()), int(target[batch].max())) for batch in plan]
    rules: list[Callable[[int], int]] = [
        lambda number: len(plan[number]) * sum(longest[number]),
        lambda number: int(source[plan[number]].sum() + target[plan[number]].sum()),
        lambda number: len(plan[number]) * max(longest[number]) ** 2,
        lambda number: len(plan[number]),
    ]
    return [plan[number] for number in sorted({max(range(len(plan)), key=rule) for rule in rules})]


def _found(config: TrainConfig, datasets: Datasets, device: torch.device, world: World) -> int:
    logger.info("trying how large batches may be")
    longest, batching = max(datasets.longest), config.batching
    if batching.tokens_per_update is None:
        sizes = candidates(datasets.train, longest, batching.update_freq * world.size)
    else:
        sizes = shares(batching.tokens_per_update, longest, world.size)
    with explained_shortage("with batches of one sentence", "the model is too large for this device"):
        attempt, stored = _trial(_with_size(config, sizes[0]), datasets, device)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return largest_by_trial(sizes, attempt, lambda: torch.cuda.max_memory_reserved(device) / total)
    give_back()
    copied = stored if config.checkpoint.asynchronous and world.main else 0  # while a checkpoint is written
    return largest_by_forecast(sizes, attempt, lambda: peak_memory(device), lambda: most_memory(device), copied)


def _trial(config: TrainConfig, datasets: Datasets, device: torch.device) -> tuple[Trial, int]:
    """Trains a model that is thrown away. From the start the optimizer's averages are there, and later gradients are.
    Also the bytes of its checkpoint."""
    model = build_model(config, datasets)
    arithmetic = build_arithmetic(config, datasets, model, device, before=None)
    step = build_step(config, datasets, model, device, World())
    save_memory(config, model)
    optimizer = build_optimizer(config, step)
    optimizer_state.training_mode(optimizer)

    def update(batches: Sequence[Indices]) -> None:
        optimizer.zero_grad(set_to_none=True)
        for indices in batches:
            seed_torch(config.seed, _SEED)
            with arithmetic.forward_pass():
                loss = step(read_batch(datasets.train, indices).to(device)).loss_sum
            loss.backward()
        optimizer.step()

    update([np.arange(1)])
    stored = checkpoint_bytes(step, optimizer)

    def attempt(size: int) -> None:
        update(largest_batches(datasets.train, _with_size(config, size).batching, config.seed))

    return attempt, stored


def checkpoint_bytes(step: Step, optimizer: torch.optim.Optimizer) -> int:
    """After an update: before it some optimizers hold nothing."""
    with optimizer_state.evaluation_mode(optimizer) as weights:
        parts = (step.model.state_dict(), step.criterion.state_dict(), optimizer_state.pack(optimizer)[0], weights)
    return sum(tensor.nbytes for tensors in parts for tensor in tensors.values())


def _of_the_run(folder: Path, options: BatchingConfig) -> int | None:
    """What the newest checkpoint of the run folder was trained with, if it counted in the same way."""
    for path in reversed(checkpoints_in(folder)):
        try:
            batching: Mapping[str, Any] = read_config(path)["batching"]
        except (NMTError, KeyError):
            continue  # damaged; restoring will say so
        if isinstance(batching.get("max_tokens"), int):
            return int(batching["max_tokens"]) if batching["count_padding"] == options.count_padding else None
    return None


def _with_size(config: TrainConfig, size: int) -> TrainConfig:
    return replace(config, batching=replace(config.batching, max_tokens=size))


def known_cost(config: TrainConfig, step: Step, train: Split, arithmetic: Arithmetic, devices: int) -> Cost:
    """What can be known before training; counting can be switched off."""
    report, batching = config.report, config.batching
    longest = min(filter(None, batching.limits), default=None) if batching.skip_long else None
    counted = (
        flops_per_token(step, train, arithmetic, seed=config.seed, longest=longest) if report.count_flops else None
    )
    return Cost(counted, sustained_tflops(arithmetic.device, report.device_tflops), devices)


def sustained_tflops(device: torch.device, given: float | None) -> float | None:
    """The rate of a device: what the user says, else that of the paper's table, else None."""
    if given is not None or device.type != "cuda":
        return given
    name = torch.cuda.get_device_name(device)
    return next((rate for kind, rate in SUSTAINED_TFLOPS.items() if re.search(rf"\b{kind}(?!\d)", name)), None)


def flops_per_token(
    step: Step, split: Split, arithmetic: Arithmetic, *, seed: int, longest: int | None = None
) -> float | None:
    """Operations of training per target token, counted on a few sentences of all lengths up to ``longest``; None if it
    fails. Nothing else changes: a copy of ``step`` computes, and random generators go on where they were."""
    try:
        cards = [] if arithmetic.device.type == "cpu" else [arithmetic.device]
        with torch.random.fork_rng(cards, device_type=arithmetic.device.type):
            seed_torch(seed, _COST_SEED)
            return _count(copy.deepcopy(step).train(), split, arithmetic, longest)
    except Exception as error:  # a model or criterion that cannot be copied, a GPU that is full
        logger.warning("operations are not counted, training goes on: %s", error)
        return None


def _count(step: Step, split: Split, arithmetic: Arithmetic, longest: int | None) -> float:
    operations, tokens = 0, 0.0
    autocast = arithmetic.forward_pass
    if arithmetic.device.type == "cpu":  # bf16 only adds rows to products (nmt.layers.linear), of so few sentences many
        autocast = contextlib.nullcontext
        if isinstance(step.model, EncoderDecoder):
            step.model.output.product_type = None
    with autocast():
        knows_flat_batches(arithmetic.device)  # torch knows what its kernel costs once that is imported
    for indices in _some_of_all_lengths(split, longest):
        batch = read_batch(split, indices).to(arithmetic.device)
        counter = FlopCounterMode(display=False, custom_mapping=RECURRENT)
        counter.flop_registry |= {other: counter.flop_registry[known] for other, known in COUNTED_AS.items()}
        with counter:
            with autocast():
                report = step(batch)
            report.loss_sum.backward()
        operations += counter.get_total_flops()
        tokens += float(report.num_tokens)
    return operations / max(1.0, tokens)


def _some_of_all_lengths(split: Split, longest: int | None) -> Iterator[Indices]:
    """Groups of sentences of nearly one length, evenly spread over the sorted split: together they are like the whole."""
    looked_at = np.arange(0, len(split), 1 + len(split) // MOST_LOOKED_AT)
    sizes = LongerSide(sides(split))[looked_at]
    order = np.argsort(sizes, kind="stable")
    order = looked_at[order[sizes[order] <= (longest or sizes.max())]]
    for part in np.array_split(order, _GROUPS):
        middle = max(0, (len(part) - _GROUP_SIZE) // 2)
        if len(group := part[middle : middle + _GROUP_SIZE]):
            yield group


# What torch's table leaves out: products in place, and fused kernels of attention and of recurrent layers.


def _recurrent_flop(input: Shape, *rest: Any, **_: Any) -> int:
    """Of the layers of one call: each weight matrix meets every position once."""
    weights = rest[0] if isinstance(rest[0], list) else rest[:2]  # cuDNN has a list of all layers', oneDNN one layer's
    return 2 * math.prod(input[:-1]) * sum(math.prod(weight) for weight in weights if len(weight) == 2)


def _recurrent_backward_flop(*arguments: Any, **_: Any) -> int:
    """The gradients of inputs and of weights."""
    return 2 * _recurrent_flop(*arguments)


_aten = torch.ops.aten
COUNTED_AS = {
    _aten.addmm_: _aten.addmm,
    _aten.baddbmm_: _aten.baddbmm,
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}
RECURRENT: dict[Any, Any] = {
    _aten.mkldnn_rnn_layer: _recurrent_flop,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward_flop,
    _aten._cudnn_rnn: _recurrent_flop,
    _aten._cudnn_rnn_backward: _recurrent_backward_flop,
}

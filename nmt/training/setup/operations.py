"""Count the floating-point operations that training takes per target token, and know the rate of a device.

Matrix products, convolutions and attention are counted, forward and backward, on a few sentences; per target token they are
nearly the same for all others. A multiplication and an addition are two operations. Element-wise work and the optimizer are
left out, as is usual.

The cost by time follows "Attention Is All You Need" (Vaswani et al. 2017), section 6.1: training time x number of devices x
sustained single-precision rate of the device, with the rates of its footnote 5. For later devices the rates are the peak
single-precision rates of their data sheets.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.config.choices import Precision
from nmt.config.sections import TrainConfig
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import LongerSide
from nmt.data.vocabulary import Ints
from nmt.devices.kinds import device_of
from nmt.models.transformer.transformer import Transformer
from nmt.reporting.run_record import Cost
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Arithmetic, Step, seed_torch
from nmt.training.setup.datasets import sides

logger = logging.getLogger("nmt.training")

SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # footnote 5
PEAK_TFLOPS = {
    "V100": 15.7,
    "T4": 8.1,
    "A100": 19.5,
    "A10": 31.2,
    "L4": 30.3,
    "L40S": 91.6,
    "H100 PCIe": 51.2,
    "H100": 66.9,
    "H200": 66.9,
    "RTX 3090": 35.6,
    "RTX 4090": 82.6,
    "MI250X": 47.9,
    "MI300X": 163.4,
}

COUNT_SEED = 2**32 - 2  # instead of an update's number
GROUPS, GROUP_SIZE = 4, 4  # sentences that are counted
MOST_LOOKED_AT = 10**6  # lengths among which they are chosen

Shape = Sequence[int]


def known_cost(config: TrainConfig, step: Step, train: Split, arithmetic: Arithmetic, devices: int) -> Cost:
    """Return the cost of an update as far as it is known before training; counting can be switched off."""
    report, batching = config.report, config.batching
    longest = min(filter(None, batching.limits), default=None) if batching.skip_long else None
    counted = (
        flops_per_token(step, train, arithmetic, seed=config.seed, longest=longest) if report.count_flops else None
    )
    return Cost(counted, sustained_tflops(arithmetic.device, report.device_tflops), devices)


def sustained_tflops(device: torch.device, option: float | None) -> float | None:
    """Return the rate of a device: the option, else a known one, else None."""
    if option is not None:
        return option
    name = device_of(device).hardware
    rates, variant = SUSTAINED_TFLOPS | PEAK_TFLOPS, r"(?![\dA-Z]| (?:Ti|SUPER|Laptop|NVL))"
    return next((rate for kind, rate in rates.items() if re.search(rf"\b{kind}{variant}", name)), None)


def flops_per_token(
    step: Step, split: Split, arithmetic: Arithmetic, *, seed: int, longest: int | None = None
) -> float | None:
    """Return the operations of training per target token, counted on a few sentences of all lengths up to ``longest``; None
    if that fails. ``step`` itself computes, since a copy might not fit on a device that holds only a part of the model
    later. Its gradients are dropped and random generators are restored, so training is unaffected."""
    device = arithmetic.device
    # on a CPU bf16 adds rows to products (nmt.layers.linear), to few sentences many
    counted_in = Arithmetic(device, Precision.fp32) if device.type == "cpu" else arithmetic
    try:
        counted_in.prepare(step.model)
        with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
            seed_torch(seed, COUNT_SEED)
            return _count(step, split, counted_in, longest)
    except Exception as error:  # a GPU that is full, or a plugin that cannot compute a few sentences
        logger.warning("operations are not counted, training continues: %s", error)
        return None
    finally:
        step.zero_grad(set_to_none=True)
        arithmetic.prepare(step.model)


def _count(step: Step, split: Split, arithmetic: Arithmetic, longest: int | None) -> float:
    operations, tokens = 0, 0.0
    if isinstance(step.model, Transformer):
        with arithmetic.forward_pass():
            step.model.without_padding(arithmetic.device)  # tries the kernel, which does not count
    for indices in _some_of_all_lengths(split, longest):
        batch = read_batch(split, indices).to(arithmetic.device)
        counter = FlopCounterMode(display=False, custom_mapping=RECURRENT)
        counter.flop_registry |= {other: counter.flop_registry[known] for other, known in COUNTED_AS.items()}
        with counter:
            with arithmetic.forward_pass():
                report = step(batch)
            report.loss_sum.backward()
        operations += counter.get_total_flops()
        tokens += float(report.num_tokens)
    return operations / max(1.0, tokens)


def _some_of_all_lengths(split: Split, longest: int | None) -> Iterator[Ints]:
    """Yield groups of sentences of nearly one length, evenly spread over the sorted split."""
    looked_at = np.arange(0, len(split), 1 + len(split) // MOST_LOOKED_AT)
    sizes = LongerSide(sides(split))[looked_at]
    order = np.argsort(sizes, kind="stable")
    order = looked_at[order[sizes[order] <= (longest or sizes.max())]]
    for part in np.array_split(order, GROUPS):
        middle = max(0, (len(part) - GROUP_SIZE) // 2)
        if len(group := part[middle : middle + GROUP_SIZE]):
            yield group


# Missing in torch's table: products in place, and fused kernels of attention and of recurrent layers.


def _recurrent_flop(input: Shape, *rest: Any, **_: Any) -> int:
    """Return the operations of the layers of one call: each weight matrix meets every position once."""
    weights = rest[0] if isinstance(rest[0], list) else rest[:2]  # cuDNN has a list of all layers', oneDNN one layer's
    return 2 * math.prod(input[:-1]) * sum(math.prod(weight) for weight in weights if len(weight) == 2)


def _recurrent_backward_flop(*arguments: Any, **_: Any) -> int:
    """Return the operations for the gradients of inputs and of weights."""
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

"""What training costs in floating-point operations, estimated from time and counted from the model.

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
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.config.sections import TrainConfig
from nmt.data.corpus import Split
from nmt.interface import EncoderDecoder
from nmt.models.transformer.attention import knows_flat_batches
from nmt.reporting.cost import Cost
from nmt.training.loop.batches import read_batch
from nmt.training.loop.step import Step, seed_torch
from nmt.training.validation.validators import Place

logger = logging.getLogger("nmt.training")

SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}  # footnote 5

_GROUPS, _GROUP_SIZE = 4, 4  # sentences that the count looks at
_SEED = 2**32 - 2  # stands where an update has its number

Shape = Sequence[int]


def known_cost(config: TrainConfig, step: Step, train: Split, place: Place) -> Cost:
    """What can be known before training; counting can be switched off."""
    report, batching = config.report, config.batching
    longest = batching.token_limit if batching.skip_long else None
    counted = flops_per_token(step, train, place, seed=config.seed, longest=longest) if report.count_flops else None
    return Cost(counted, sustained_tflops(place.device, report.device_tflops), place.world.size)


def sustained_tflops(device: torch.device, given: float | None) -> float | None:
    """The rate of a device: what the user says, else that of the paper's table, else None."""
    if given is not None or device.type != "cuda":
        return given
    name = torch.cuda.get_device_name(device)
    return next((rate for kind, rate in SUSTAINED_TFLOPS.items() if re.search(rf"\b{kind}(?!\d)", name)), None)


def flops_per_token(step: Step, split: Split, place: Place, *, seed: int, longest: int | None = None) -> float | None:
    """Operations of training per target token, counted on a few sentences of all lengths up to ``longest``.

    Nothing else changes: a copy of ``step`` computes, and random generators go on where they were. None if it fails.
    """
    try:
        with _generators_kept(place.device):
            seed_torch(seed, _SEED)
            return _count(copy.deepcopy(step).train(), split, place, longest)
    except Exception as error:  # a model or criterion that cannot be copied, a GPU that is full
        logger.warning("operations are not counted, training goes on: %s", error)
        return None


def _count(step: Step, split: Split, place: Place, longest: int | None) -> float:
    operations, tokens = 0, 0.0
    autocast = place.autocast
    if place.device.type == "cpu":  # bf16 only adds rows to products (nmt.layers.linear), of so few sentences many
        autocast = contextlib.nullcontext
        if isinstance(step.model, EncoderDecoder):
            step.model.output.product_type = None
    with autocast():
        knows_flat_batches(place.device)  # torch knows what its kernel costs once that is imported
    for indices in _some_of_all_lengths(split, longest):
        batch = read_batch(split, indices).to(place.device)
        counter = FlopCounterMode(display=False, custom_mapping=MORE)
        with counter:
            with autocast():
                report = step(batch)
            report.loss_sum.backward()
        operations += counter.get_total_flops()
        tokens += float(report.num_tokens)
    return operations / max(1.0, tokens)


def _some_of_all_lengths(split: Split, longest: int | None) -> Iterator[npt.NDArray[np.int64]]:
    """Groups of sentences of nearly one length, evenly spread over the sorted split: together they are like the whole."""
    assert split.target_lengths is not None, "a training split has targets"
    sizes = np.maximum(split.source_lengths, split.target_lengths)
    order = np.argsort(sizes, kind="stable")
    order = order[sizes[order] <= (longest or sizes.max())]
    for part in np.array_split(order, _GROUPS):
        middle = max(0, (len(part) - _GROUP_SIZE) // 2)
        if len(group := part[middle : middle + _GROUP_SIZE]):
            yield group


def _generators_kept(device: torch.device) -> AbstractContextManager[None]:
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng([device], device_type=device.type)


# What torch's table leaves out: products in place, and fused kernels of attention and of recurrent layers.


def _product_flop(added: Shape, left: Shape, right: Shape, **_: Any) -> int:
    return 2 * math.prod(left) * right[-1]


def _attention_flop(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Scores and the weighted sum: [B, H, T, d_k], [B, H, S, d_k], [B, H, S, d_v]."""
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _attention_backward_flop(gradient: Shape, *inputs: Any, **_: Any) -> int:
    """Two products for each of the forward pass, and the scores once more."""
    query, key, value = inputs[:3]
    return int(2 * math.prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]))


def _recurrent_flop(input: Shape, *rest: Any, **_: Any) -> int:
    """Of the layers of one call: each weight matrix meets every position once."""
    weights = rest[0] if isinstance(rest[0], list) else rest[:2]  # cuDNN has a list of all layers', oneDNN one layer's
    return 2 * math.prod(input[:-1]) * sum(math.prod(weight) for weight in weights if len(weight) == 2)


def _recurrent_backward_flop(*arguments: Any, **_: Any) -> int:
    """The gradients of inputs and of weights."""
    return 2 * _recurrent_flop(*arguments)


_aten = torch.ops.aten
MORE: dict[Any, Any] = {
    _aten.addmm_: _product_flop,
    _aten.baddbmm_: _product_flop,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention_flop,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flop,
    _aten.mkldnn_rnn_layer: _recurrent_flop,
    _aten.mkldnn_rnn_layer_backward: _recurrent_backward_flop,
    _aten._cudnn_rnn: _recurrent_flop,
    _aten._cudnn_rnn_backward: _recurrent_backward_flop,
}

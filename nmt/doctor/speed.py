"""Measure how fast a device multiplies matrices, and trains the base and the big Transformer."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt.config.choices import Precision
from nmt.criterions import criterions
from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import EOS, SPECIALS
from nmt.devices import half_precision, is_shortage
from nmt.devices.kinds import device_of
from nmt.doctor.outcomes import Skipped
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import AdamConfig
from nmt.optim.torch_optimizers import options_of_adam, runs_fused
from nmt.testing.subjects import load_preset
from nmt.training.loop.learner import Arithmetic, Step

VOCABULARY = 37_000  # shared, as in the paper
LENGTH = 25  # tokens of a sentence
TOKENS = 25_000  # of an update, on each side, as in the paper
TOKENS_OF_A_CPU = 500
UPDATES = 5
BASE, BIG = "transformer_base", "transformer_big"  # presets


def products(device: torch.device) -> str:
    """Measure matrix products."""
    precision = _precision(device)
    return f"{product_rate(device, precision) / 1e12:.3g} TFLOP/s in {precision.name}"


@functools.cache
def product_rate(device: torch.device, precision: Precision) -> float:
    """Return the floating-point operations a second of matrix products."""
    dtype = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(precision, torch.float32)
    size, repeats = (512, 20) if device.type == "cpu" else (4096, 50)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    seconds = min(_seconds(lambda: [left @ right for _ in range(repeats)], device) for _ in range(3))
    return 2 * size**3 * repeats / seconds


def training(device: torch.device, preset: str) -> str:
    """Measure the speed of training with Adam, and its share of the matrix-product rate."""
    if on_cpu(device) and preset == BIG:
        raise Skipped("an update takes too long on a CPU")
    config, tokens = load_preset(preset), TOKENS_OF_A_CPU if on_cpu(device) else TOKENS
    while True:
        try:
            return _training(device, config, tokens)
        except Exception as error:
            if not is_shortage(error) or tokens < 2 * LENGTH:
                raise
        device_of(device).release_memory()
        tokens //= 2


def _training(device: torch.device, config: TransformerConfig, tokens: int) -> str:
    sizes = VocabularySizes(VOCABULARY, VOCABULARY, True)
    criterion = criterions.build(criterions.config_class("label_smoothed_cross_entropy")())
    step = Step(models.build(config, sizes), criterion).to(device).train()
    precision = _precision(device)
    arithmetic = Arithmetic(device, precision)
    arithmetic.prepare(step.model)
    named = [{"params": list(step.named_parameters())}]
    optimizer = torch.optim.Adam(step.parameters(), **options_of_adam(AdamConfig()), fused=runs_fused(named))
    batch = _batch(tokens // LENGTH).to(device)

    def passes(part: Batch) -> None:
        optimizer.zero_grad()
        with arithmetic.forward_pass():
            report = step(part)
        (report.loss_sum / report.num_tokens).backward()

    def updates() -> None:
        for _ in range(count):
            passes(batch)
            optimizer.step()

    count = 1 if on_cpu(device) else UPDATES
    device_of(device).reset_peak()
    rate = tokens * count / _seconds(updates, device)
    with FlopCounterMode(display=False) as counter:
        passes(_batch(4).to(device))
    share = rate * counter.get_total_flops() / (4 * LENGTH) / product_rate(device, precision)
    memory = device_of(device).peak_memory()
    used = "" if memory is None else f", {memory / 2**30:.1f} GiB"
    return (
        f"{rate:,.0f} target tokens/s in {precision.name}, updates of {tokens:,} tokens{used}; {share:.0%} of the "
        f"matrix-product rate"
    )


def on_cpu(device: torch.device) -> bool:
    return device.type == "cpu"


def _precision(device: torch.device) -> Precision:
    return Precision.fp32 if on_cpu(device) else half_precision(device)


def _batch(sentences: int) -> Batch:
    draw = np.random.default_rng(1)
    sides = [np.append(draw.integers(len(SPECIALS), VOCABULARY, LENGTH - 1), EOS) for _ in range(2 * sentences)]
    return collate(sides[:sentences], sides[sentences:])


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the duration of work, the second time."""
    work()
    device_of(device).synchronize()
    began = time.perf_counter()
    work()
    device_of(device).synchronize()
    return time.perf_counter() - began

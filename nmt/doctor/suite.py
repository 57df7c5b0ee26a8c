"""The checks of nmt-doctor, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nmt.config.choices import Compilation, Precision
from nmt.devices.faults import FastPath
from nmt.doctor import computations, runs, speed
from nmt.doctor.outcomes import Check
from nmt.models import models

QUICK = (Check("training step", computations.training_step), Check("translation", computations.translation))

_PATHS = {Precision.tf32: FastPath.tf32, Precision.bf16: FastPath.bf16, Precision.fp16: FastPath.fp16}


def full() -> Iterator[Check]:
    """Yield all checks."""
    yield from QUICK
    for name in models.names():
        for precision in computations.TOLERANCES:
            run = partial(computations.training_step, name=name, precision=precision)
            yield Check(f"training step: {name}, {precision.name}", run, _PATHS.get(precision))
    yield Check("fused optimizer", computations.fused_optimizer, FastPath.fused_optimizer)
    yield Check("skipped update", computations.skipped_update, FastPath.queued_updates)
    yield Check("attention", computations.attention, FastPath.fused_attention)
    yield Check("attention without padding", computations.attention_without_padding, FastPath.flat_attention)
    for what in (Compilation.layers, Compilation.step):
        yield Check(f"compiled: {what.value}", partial(computations.compiled, what=what))
    yield Check("recorded steps", computations.recorded_graphs)
    yield Check("shortage of memory", computations.memory_shortage)
    yield Check("forecast of memory", runs.memory_forecast)
    yield Check("no waiting in an update", computations.no_waiting)
    for strategy in ("ddp", "fsdp"):
        yield Check(f"all devices together: {strategy}", partial(runs.several_ranks, strategy=strategy))
    yield Check("a killed rank", runs.killed_rank)
    yield Check("speed: matrix products", speed.products)
    for preset in (speed.BASE, speed.BIG):
        yield Check(f"speed: {preset}", partial(speed.training, preset=preset))

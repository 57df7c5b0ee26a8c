"""What is trained and how it computes: the step, the seeds of random generators, the precision.

Parameters, sums, gradients and the optimizer are in float32 in every precision.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.choices import Precision
from nmt.criterions import Criterion
from nmt.devices import half_precision, is_shortage, meant, require_precision
from nmt.devices.faults import FastPath, avoids
from nmt.devices.kinds import Device, device_of
from nmt.distributed.world import World
from nmt.errors import DeviceError, quantity
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.training.loop.optimizer_state import evaluation_mode

SMALLER_BATCHES = (
    "lower --max-tokens and raise --update-freq by the same factor (--tokens-per-update does so automatically)"
)
WIDE = 256  # from this width on a CPU computes the whole model in bf16,
WIDE_FOR_TILES = 128  # or from this one if it has tiles for it
LARGE_VOCABULARY = 2048  # from this size on the output layer alone, where the model is narrower


class Step(nn.Module):
    """A model under its criterion. Compilation and distribution wrap this module."""

    def __init__(self, model: EncoderDecoder, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, batch: Batch) -> LossReport:
        report: LossReport = self.criterion(self.model, batch)
        return report


def seed_torch(*key: int) -> None:
    """Seed all generators of torch with a hash of ``key``, such as (seed, update, micro-batch)."""
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # torch.manual_seed takes 0.2 to 0.6 ms more, to keep the seed for GPUs that there are not
        torch.default_generator.manual_seed(seed)


def all_finite(tensors: Sequence[Tensor]) -> list[bool]:
    """Return whether each tensor is finite, after waiting once for the device of all of them."""
    if not tensors:
        return []
    flags = torch.stack([tensor.isfinite().all() for tensor in tensors])
    return [bool(flag) for flag in device_of(flags).fetched(flags)[0]]


@contextlib.contextmanager
def explained_shortage(where: str, advice: str) -> Iterator[None]:
    """Turn a shortage of memory into an error that says where it was and what needs less."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        raise DeviceError(f"out of memory {where}; {advice}") from error


def described(batch: Batch) -> str:
    longest_source, longest_target = batch.source.size(1), batch.target_in.size(1)
    return f"{quantity(batch.num_sentences, 'sentence')} of up to {longest_source} source and {longest_target} target tokens"


def choose_precision(
    option: Precision, device: torch.device, *, width: int, vocabulary: int, before: Precision | None = None
) -> Precision:
    """Return the precision of ``option`` for a model of this size; ``auto`` keeps ``before``, that of the run so far.

    A rule over device, capability and size, never a measurement: the same command on the same machine computes the same.
    """
    option = meant(option, device)
    if option is not Precision.auto:
        require_precision(device, option)
        return option
    kind = device_of(device)
    if before is not None and _computes(kind, before):
        return before
    if kind.queues:
        return half_precision(device)
    if not kind.computes_bf16() or avoids(device, FastPath.bf16):
        return Precision.fp32
    if width >= (WIDE_FOR_TILES if kind.multiplies_tiles() else WIDE):
        return Precision.bf16
    return Precision.bf16_output if vocabulary >= LARGE_VOCABULARY else Precision.fp32


def _computes(kind: Device, precision: Precision) -> bool:
    """Whether a device computes in a precision without emulating it."""
    if precision is Precision.fp32:
        return True
    if precision is Precision.tf32:
        return kind.computes_tf32()
    return kind.halves if precision is Precision.fp16 else kind.computes_bf16()


class Arithmetic:
    """What a precision changes in the step: the dtype of forward passes and of the output product, and a loss scale."""

    def __init__(self, device: torch.device, precision: Precision) -> None:
        assert precision not in (Precision.auto, Precision.usual)
        self.device = device
        self.precision = precision
        self._scale = LossScale() if precision is Precision.fp16 else None

    def forward_pass(self) -> AbstractContextManager[object]:
        dtype = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(self.precision)
        return contextlib.nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def prepare(self, model: EncoderDecoder) -> None:
        """Set the dtype of the product in the output layer of a model, and how products in float32 are computed."""
        automatic = self.precision in (Precision.bf16, Precision.fp16) and not avoids(self.device, FastPath.tf32)
        device_of(self.device).allow_tf32(automatic or self.precision is Precision.tf32)
        model.output.product_type = torch.bfloat16 if self.precision is Precision.bf16_output else None

    def scaled(self, x: Tensor) -> Tensor:
        """Scale a loss, or the denominator that its gradients are divided by later."""
        return x if self._scale is None else x * self._scale.value

    def observe(self, *, loss: float, gradient: float) -> bool:
        """Record the loss and gradient norm of an update. True: only the gradient was too large, for the loss scale."""
        if self._scale is None or not math.isfinite(loss):  # no scale repairs a loss
            return False
        return self._scale.observe(finite=math.isfinite(gradient))

    def reason(self) -> str:
        """Return why an update was skipped although nothing is wrong."""
        assert self._scale is not None
        return f"its gradient overflowed in fp16, the loss scale is now {self._scale.value:g}"

    def state(self) -> dict[str, float]:
        return {} if self._scale is None else asdict(self._scale)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the loss scale of a checkpoint; that of another precision has none."""
        if self._scale is not None and state:
            self._scale = LossScale(**state)

    def __str__(self) -> str:
        return f"{self.device.type} in {self.precision.name}"


@dataclass
class LossScale:
    """Multiplies the loss so that small gradients do not vanish in fp16; torch's rule for growing and shrinking. It starts
    low because losses are sums over tokens. A gradient that is not finite is normal here: the scale was too large. At
    ``SMALLEST`` it no longer is, and counts as a bad update."""

    FIRST, SMALLEST, LARGEST, PATIENCE = 2.0**7, 2.0**-10, 2.0**24, 2000

    value: float = FIRST
    good: int = 0  # updates since it last changed

    def observe(self, *, finite: bool) -> bool:
        """Record an update, which was made if its gradient was finite. True: it was too large for the scale."""
        if not finite:
            overflow = self.value > self.SMALLEST
            self.value, self.good = max(self.value / 2, self.SMALLEST), 0
            return overflow
        self.good += 1
        if self.good == self.PATIENCE:
            self.value, self.good = min(2 * self.value, self.LARGEST), 0
        return False


@dataclass(frozen=True)
class Learner:
    """A model under its criterion, their optimizer and precision, and the ranks that share them."""

    step: Step
    optimizer: torch.optim.Optimizer
    arithmetic: Arithmetic
    world: World

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[dict[str, Tensor]]:
        """Set modules to eval mode, and parameters to the weights for evaluation of an optimizer that keeps two kinds. Yield
        the training weights by parameter number; empty if there is no difference."""
        self.step.eval()
        try:
            with evaluation_mode(self.optimizer) as training_weights:
                yield training_weights
        finally:
            self.step.train()

"""What is trained and how it computes: the step, the random numbers of a batch, the number format.

Parameters, sums, gradients and the optimizer are in float32 whatever format is chosen.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.choices import Precision
from nmt.criterions import Criterion
from nmt.devices import computes_bf16, is_shortage, multiplies_tiles, require_precision
from nmt.distributed.world import World
from nmt.errors import DeviceError
from nmt.interface import Batch, EncoderDecoder, LossReport
from nmt.training.checkpoints.optimizer_state import evaluation_mode

SMALLER_BATCHES = (
    "lower --max-tokens and raise --update-freq by the same factor (--tokens-per-update does it by itself)"
)
WIDE = 256  # from this width on a CPU computes the whole model in bf16,
WIDE_FOR_TILES = 128  # or from this one if it has tiles for it
LARGE_VOCABULARY = 2048  # from this size on the output layer alone, where the model is narrower


class Step(nn.Module):
    """A model under its criterion. Whatever wraps a module (compilation, processes) wraps this."""

    def __init__(self, model: EncoderDecoder, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, batch: Batch) -> LossReport:
        report: LossReport = self.criterion(self.model, batch)
        return report


def seed_torch(*key: int) -> None:
    """Seed all of torch's generators with a number drawn from ``key``, say (seed, update, micro-batch)."""
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1)))


@contextlib.contextmanager
def explained_shortage(where: str, advice: str) -> Iterator[None]:
    """Say which work there was no memory for, and what would need less."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        raise DeviceError(f"out of memory {where}; {advice}") from error


def described(batch: Batch) -> str:
    longest_source, longest_target = batch.source.size(1), batch.target_in.size(1)
    return f"{batch.num_sentences} sentences of up to {longest_source} source and {longest_target} target pieces"


def choose_precision(
    wanted: Precision, device: torch.device, *, width: int, vocabulary: int, before: Precision | None = None
) -> Precision:
    """What ``wanted`` means for a model of this size; ``auto`` stays with ``before``, that of the run so far. A rule
    over device, capability and size, never a measurement: the same command on the same machine computes the same."""
    if wanted is not Precision.auto:
        require_precision(device, wanted)
        return wanted
    possible = device.type == "cuda" if before is Precision.fp16 else before is Precision.fp32 or computes_bf16(device)
    if before is not None and possible:
        return before
    if device.type == "cuda":
        return Precision.bf16 if computes_bf16(device) else Precision.fp16
    if not computes_bf16(device):
        return Precision.fp32
    if width >= (WIDE_FOR_TILES if multiplies_tiles(device) else WIDE):
        return Precision.bf16
    return Precision.bf16_output if vocabulary >= LARGE_VOCABULARY else Precision.fp32


class Arithmetic:
    """What a precision changes in the step: the format of forward passes, of the output product, and a loss scale."""

    def __init__(self, device: torch.device, precision: Precision) -> None:
        assert precision is not Precision.auto
        self.device = device
        self.precision = precision
        self._scale = LossScale() if precision is Precision.fp16 else None

    def forward_pass(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        dtype = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(self.precision)
        return contextlib.nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)

    def prepare(self, model: EncoderDecoder) -> None:
        """Tell a model how its output layer is multiplied with."""
        model.output.product_type = torch.bfloat16 if self.precision is Precision.bf16_output else None

    def scaled(self, x: Tensor) -> Tensor:
        """A loss, or what its gradients are divided by later."""
        return x if self._scale is None else x * self._scale.value

    def observe(self, *, loss: float, gradient: float) -> bool:
        """Take note of an update's loss and gradient norm. True: the gradient alone was too large for the loss scale."""
        if self._scale is None or not math.isfinite(loss):  # no scale mends a loss
            return False
        return self._scale.observe(finite=math.isfinite(gradient))

    def reason(self) -> str:
        """Why an update whose gradient was not finite is no bad sign."""
        assert self._scale is not None
        return f"its gradient overflowed in fp16, the loss is now multiplied by {self._scale.value:g}"

    def state(self) -> dict[str, float]:
        return {} if self._scale is None else asdict(self._scale)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on with the scale of a checkpoint; one of another precision has none."""
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
        """Take note of an update, which was made if its gradient was finite. True: it was too large for the scale."""
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
    """A model under its criterion, the optimizer of both, their number format, and the processes that share them."""

    step: Step
    optimizer: torch.optim.Optimizer
    arithmetic: Arithmetic
    world: World

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[dict[str, Tensor]]:
        """Modules in eval mode, and the optimizer's weights for evaluation where it keeps two kinds. Yields those for
        training by parameter number, nothing if there is no difference."""
        self.step.eval()
        try:
            with evaluation_mode(self.optimizer) as training_weights:
                yield training_weights
        finally:
            self.step.train()

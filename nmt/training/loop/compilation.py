"""torch.compile for training: for each layer of a model's stacks, or for the whole step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nmt import DOCUMENTATION
from nmt.config.choices import Compilation
from nmt.data.batching.batch import Batch
from nmt.devices import is_shortage
from nmt.errors import UsageError, quantity
from nmt.layers.stack import stacked_layers
from nmt.training.loop.learner import SMALLER_BATCHES, Arithmetic, Step, described, seed_torch

logger = logging.getLogger("nmt.training")

BACKEND: Any = "inductor"  # a name or a function that torch.compile accepts
_SEED = 2**32 - 4  # instead of an update's number


def compile_step(step: Step, what: Compilation, batch: Batch, arithmetic: Arithmetic, seed: int) -> bool:
    """Compile a step or its layers for batches of any size, and try it on ``batch``.

    Return False, with a warning, if that fails; nothing is compiled then. A part that cannot be compiled later, for other
    shapes, runs uncompiled from then on, with a warning.
    """
    parts = [step] if what is Compilation.step else list(stacked_layers(step.model))
    if not parts:
        raise UsageError(
            "training.compile=layers compiles nothing: this model has no stack of layers that each run once in a pass; "
            "use --compile step, or leave --compile out"
        )
    name = "the step" if what is Compilation.step else quantity(len(parts), "layer")
    are = "is" if len(parts) == 1 else "are"
    logger.info("compiling %s; this takes a minute or two", name)
    if arithmetic.device.type == "cpu":
        logger.warning(
            "on a CPU, compiled layers were slower, and a compiled step was not measured "
            f"({DOCUMENTATION}/explanation/speed/); omit --compile"
        )
    graphs, there = _Graphs(), batch.to(arithmetic.device)
    try:
        with torch.no_grad(), arithmetic.forward_pass():
            step(there)  # probes and caches of a first call must not be traced
        for part in parts:
            part.compile(dynamic=True, backend=graphs)
        seed_torch(seed, _SEED)
        with arithmetic.forward_pass():
            loss = step(there).loss_sum
        loss.backward()
    except Exception as error:
        for part in parts:
            part._compiled_call_impl = None
        memory = f"out of memory in a micro-batch of {described(batch)}; {SMALLER_BATCHES}"
        reason = memory if is_shortage(_cause(error)) else _first_line(error)
        logger.warning("%s %s not compiled: %s", name, are, reason)
        return False
    finally:
        step.zero_grad(set_to_none=True)
    for part in parts:
        part._compiled_call_impl = _with_fallback(part)
    graphs.log_each = True
    made = f"{quantity(graphs.count, 'graph')} in {graphs.seconds:.0f} s"
    logger.info("%s %s compiled: %s", name, are, made)
    return True


class _Graphs:
    """Compile graphs by torch's backend, and count them."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        self.log_each = False

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        from torch._dynamo.backends.registry import lookup_backend

        began = time.perf_counter()
        compiled: Callable[..., Any] = lookup_backend(BACKEND)(graph, inputs)
        seconds = time.perf_counter() - began
        self.count, self.seconds = self.count + 1, self.seconds + seconds
        if self.log_each:
            logger.info("compiled graph %d, for new shapes (%.1f s)", self.count, seconds)
        return compiled


def _with_fallback(part: nn.Module) -> Callable[..., Any]:
    """Return the compiled call of a module, which runs uncompiled after a failure of the compiler in a forward pass."""
    from torch._dynamo.exc import TorchDynamoException

    compiled = part._compiled_call_impl
    assert compiled is not None

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return compiled(*arguments, **named)
        except TorchDynamoException as error:
            if is_shortage(cause := _cause(error)):
                raise cause from None  # the batch is computed in halves
            part._compiled_call_impl = None
            logger.warning("%s runs uncompiled from now on: %s", type(part).__name__, _first_line(error))
            return part(*arguments, **named)

    return call


def _cause(error: BaseException) -> BaseException:
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    return error


def _first_line(error: BaseException) -> str:
    error = _cause(error)
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

"""torch.compile for the layers of a model, with a way back."""

from __future__ import annotations

import logging

import torch

from nmt.data.batching.batch import Batch
from nmt.devices import is_shortage
from nmt.errors import UsageError, quantity
from nmt.layers.stack import stacked_layers
from nmt.training.loop.learner import SMALLER_BATCHES, Arithmetic, Step, described, seed_torch

logger = logging.getLogger("nmt.training")

BACKEND = "inductor"
_SEED = 2**32 - 4  # instead of an update's number


def compile_layers(step: Step, batch: Batch, arithmetic: Arithmetic, seed: int) -> bool:
    """Compile the layers of all stacks for any length, each kind of layer once, and try them on ``batch``.

    Return False, with a warning, if compilation fails; all layers then run uncompiled. A layer whose later compilation for
    other inputs fails runs uncompiled from then on.
    """
    layers = list(stacked_layers(step.model))
    if not layers:
        raise UsageError(
            "training.compile=true compiles nothing: this model has no stack of layers that each run once in a pass; "
            "leave --compile out"
        )
    for layer in layers:
        layer.compile(dynamic=True, backend=BACKEND)
    logger.info("compiling the layers; this takes a minute or two")
    if arithmetic.device.type == "cpu":
        logger.warning(
            "on a CPU compiled layers were slower where that was measured (docs/performance.md); leave --compile out"
        )
    try:
        seed_torch(seed, _SEED)
        with arithmetic.forward_pass():
            loss = step(batch.to(arithmetic.device)).loss_sum
        loss.backward()
    except Exception as error:
        for layer in layers:
            layer._compiled_call_impl = None
        logger.warning("layers run uncompiled: %s", _reason(error, batch))
        return False
    finally:
        step.zero_grad(set_to_none=True)
    torch._dynamo.config.suppress_errors = True
    logger.info("%s %s compiled", quantity(len(layers), "layer"), "is" if len(layers) == 1 else "are")
    return True


def _reason(error: BaseException, batch: Batch) -> str:
    """Return the innermost cause of an error in one line."""
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    if is_shortage(error):
        return f"out of memory in a batch of {described(batch)}; {SMALLER_BATCHES}"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

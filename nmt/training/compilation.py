"""torch.compile for the layers of a model, with a way back."""

from __future__ import annotations

import logging

import torch

from nmt.data.batch import Batch
from nmt.errors import UsageError
from nmt.modules.stack import stacked_layers
from nmt.training.precision import Arithmetic
from nmt.training.step import Step, seed_torch

logger = logging.getLogger("nmt.training")

BACKEND = "inductor"
_SEED = 2**32 - 4  # stands where an update has its number


def compile_layers(step: Step, batch: Batch, arithmetic: Arithmetic, seed: int) -> bool:
    """Compile the layers of all stacks, one kind of layer once, for any length; ``batch`` is what this is tried on.

    False: something is missing or cannot be compiled; that is said, and everything runs as it was. A layer that meets
    such a thing later (it is compiled again for inputs of another kind) runs uncompiled from then on.
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
    try:
        seed_torch(seed, _SEED)
        with arithmetic.forward_pass():
            loss = step(batch.to(arithmetic.device)).loss_sum
        loss.backward()
    except Exception as error:
        for layer in layers:
            layer._compiled_call_impl = None
        logger.warning("layers run uncompiled: %s", _first_line(error))
        return False
    finally:
        step.zero_grad(set_to_none=True)
    torch._dynamo.config.suppress_errors = True
    logger.info("%d layers are compiled", len(layers))
    return True


def _first_line(error: BaseException) -> str:
    """Of what was behind it all."""
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

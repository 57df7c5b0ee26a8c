"""torch.compile for the layers of a model, with a way back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TypeGuard

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from nmt.data.batching.batch import Batch
from nmt.devices import is_shortage
from nmt.errors import UsageError, quantity
from nmt.interface import EncoderDecoder
from nmt.layers.stack import stacked_layers
from nmt.models.transformer.mask import exact_segments
from nmt.models.transformer.transformer import Transformer
from nmt.training.loop.flat_sizes import few_shapes
from nmt.training.loop.learner import SMALLER_BATCHES, Arithmetic, Step, described, seed_torch

logger = logging.getLogger("nmt.training")

BACKEND = "inductor"
REPLAYED = "reduce-overhead"  # torch's mode with CUDA graphs
SHAPES = 256  # that a layer may be compiled for
PASSES = 3  # until a graph is recorded and replayed; torch first runs it uncompiled
_SEED = 2**32 - 4  # instead of an update's number


def compile_layers(step: Step, batch: Batch, arithmetic: Arithmetic, seed: int, *, graphs: bool = False) -> bool:
    """Compile the layers of all stacks for any length, each kind of layer once, and try them on ``batch``.

    ``graphs``: compile for a few shapes instead, and record their kernels as CUDA graphs. Return False, with a warning, if
    compilation fails; all layers then run uncompiled. A layer whose later compilation for other inputs fails runs
    uncompiled from then on.
    """
    layers = list(stacked_layers(step.model))
    if not layers:
        raise UsageError(
            "training.compile=true compiles nothing: this model has no stack of layers that each run once in a pass; "
            "leave --compile out"
        )
    replay = graphs and _choose_few_shapes(step, arithmetic)
    for layer in layers:
        layer.compile(dynamic=not replay, backend=BACKEND, mode=REPLAYED if replay else None)
    handles = _prepare_replay(step) if replay else []
    logger.info("compiling the layers; this takes a minute or two")
    if arithmetic.device.type == "cpu":
        logger.warning(
            "on a CPU compiled layers were slower where that was measured (docs/performance.md); leave --compile out"
        )
    try:
        for _ in range(PASSES if replay else 1):
            seed_torch(seed, _SEED)
            with arithmetic.forward_pass():
                loss = step(batch.to(arithmetic.device)).loss_sum
            loss.backward()
    except Exception as error:
        for layer in layers:
            layer._compiled_call_impl = None
        for handle in handles:
            handle.remove()
        if isinstance(step.model, Transformer):
            step.model.segments_of = exact_segments
        logger.warning("layers run uncompiled: %s", _reason(error, batch))
        return False
    finally:
        step.zero_grad(set_to_none=True)
    torch._dynamo.config.suppress_errors = True
    compiled = f"{quantity(len(layers), 'layer')} {'is' if len(layers) == 1 else 'are'} compiled"
    logger.info("%s%s", compiled, ", their kernels are recorded and replayed" if replay else "")
    return True


@contextlib.contextmanager
def any_shape(model: EncoderDecoder) -> Iterator[None]:
    """Run layers that were compiled for a few shapes uncompiled inside the block: a search has new shapes at every step."""
    replayed = isinstance(model, Transformer) and model.segments_of is few_shapes
    layers = list(stacked_layers(model)) if replayed else []
    compiled = [layer._compiled_call_impl for layer in layers]
    for layer in layers:
        layer._compiled_call_impl = None
    try:
        yield
    finally:
        for layer, call in zip(layers, compiled):
            layer._compiled_call_impl = call


def _choose_few_shapes(step: Step, arithmetic: Arithmetic) -> bool:
    """Let the model fill batches up to a few shapes, for graphs. False: it cannot, and a warning says why.

    A graph is for one shape, and only rows without padding can be filled up to it at little cost.
    """
    if not step.criterion.runs_model_once:
        reason = "the criterion runs the model more than once, and its results share their memory"
    elif step.criterion.asks_for_attention:
        reason = "the criterion asks for attention, so batches keep their padding, and shapes vary"
    elif not _is_flat(step.model, arithmetic):
        reason = "the batches of this model keep their padding here, and shapes vary"
    else:
        step.model.segments_of = few_shapes
        return True
    logger.warning("no CUDA graphs: %s", reason)
    return False


def _is_flat(model: EncoderDecoder, arithmetic: Arithmetic) -> TypeGuard[Transformer]:
    with arithmetic.forward_pass():
        return isinstance(model, Transformer) and model.without_padding(arithmetic.device)


def _prepare_replay(step: Step) -> list[RemovableHandle]:
    """Copy gradients out of the memory of a graph, which the next replay overwrites."""
    torch._dynamo.config.recompile_limit = SHAPES
    handles = [step.register_forward_pre_hook(lambda *_: torch.compiler.cudagraph_mark_step_begin())]  # type: ignore[no-untyped-call]
    for parameter in step.parameters():
        if parameter.requires_grad:
            handles.append(parameter.register_post_accumulate_grad_hook(_own_gradient))  # type: ignore[no-untyped-call]
    return handles


def _own_gradient(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad.clone()


def _reason(error: BaseException, batch: Batch) -> str:
    """Return the innermost cause of an error in one line."""
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    if is_shortage(error):
        return f"out of memory in a batch of {described(batch)}; {SMALLER_BATCHES}"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

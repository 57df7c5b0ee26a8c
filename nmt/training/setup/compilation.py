"""torch.compile for the layers of a model, with a way back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from nmt.data.batch import Batch
from nmt.devices import is_shortage
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.layers.stack import stacked_layers
from nmt.models.transformer.without_padding import WithoutPadding
from nmt.training.loop.learner import SMALLER_BATCHES, Arithmetic, Step, described, seed_torch

logger = logging.getLogger("nmt.training")

BACKEND = "inductor"
REPLAYED = "reduce-overhead"  # torch's name for CUDA graphs
SHAPES = 256  # a layer may be compiled for so many
PASSES = 3  # until a graph is recorded and replayed: torch first runs it as it is
_SEED = 2**32 - 4  # stands where an update has its number


def compile_layers(step: Step, batch: Batch, arithmetic: Arithmetic, seed: int, *, graphs: bool = False) -> bool:
    """Compile the layers of all stacks, one kind of layer once, for any length; ``batch`` is what this is tried on.

    ``graphs``: for a few shapes instead, whose kernels are recorded as CUDA graphs and replayed.

    False: something is missing or cannot be compiled; that is said, and everything runs as it was. A layer that meets
    such a thing later (it is compiled again for inputs of another kind) runs uncompiled from then on.
    """
    layers = list(stacked_layers(step.model))
    if not layers:
        raise UsageError(
            "training.compile=true compiles nothing: this model has no stack of layers that each run once in a pass; "
            "leave --compile out"
        )
    replay = graphs and _meets_few_shapes(step, arithmetic)
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
        _ask_for_few_shapes(step.model, False)
        logger.warning("layers run uncompiled: %s", _reason(error, batch))
        return False
    finally:
        step.zero_grad(set_to_none=True)
    torch._dynamo.config.suppress_errors = True
    logger.info("%d layers are compiled%s", len(layers), ", their kernels are recorded and replayed" if replay else "")
    return True


@contextlib.contextmanager
def any_shape(model: EncoderDecoder) -> Iterator[None]:
    """Inside, layers that were compiled for a few shapes run as they are: a search would meet others at every step."""
    few_shapes = isinstance(model, WithoutPadding) and model.few_shapes
    layers = list(stacked_layers(model)) if few_shapes else []
    compiled = [layer._compiled_call_impl for layer in layers]
    for layer in layers:
        layer._compiled_call_impl = None
    try:
        yield
    finally:
        for layer, call in zip(layers, compiled):
            layer._compiled_call_impl = call


def _meets_few_shapes(step: Step, arithmetic: Arithmetic) -> bool:
    """A graph is of one shape, and only rows without padding can be filled up to one at little cost."""
    if not step.criterion.runs_model_once:
        reason = "the criterion runs the model more than once, and its results share their memory"
    elif step.criterion.asks_for_attention:
        reason = "the criterion asks for attention, so batches keep their padding, and shapes vary"
    else:
        with arithmetic.forward_pass():
            flat = isinstance(step.model, WithoutPadding) and step.model.without_padding(arithmetic.device)
        _ask_for_few_shapes(step.model, flat)
        reason = "" if flat else "the batches of this model keep their padding here, and shapes vary"
    if reason:
        logger.warning("no CUDA graphs: %s", reason)
    return not reason


def _ask_for_few_shapes(model: EncoderDecoder, few: bool) -> None:
    if isinstance(model, WithoutPadding):
        model.few_shapes = few


def _prepare_replay(step: Step) -> list[RemovableHandle]:
    """What is replayed is written to the same memory again: nothing of it may be needed after its update."""
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
    """In one line, by what was behind it all."""
    while (cause := getattr(error, "inner_exception", None) or error.__cause__) is not None:
        error = cause
    if is_shortage(error):
        return f"out of memory in a batch of {described(batch)}; {SMALLER_BATCHES}"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

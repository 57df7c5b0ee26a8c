"""Building a model from a stored configuration, limited to the size of the stored parameters, and the reverse: the options
that build a model in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from nmt.devices import is_shortage
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.storage.tensor_file import forms_of

_SPARE = 1000  # tolerance: parameters that are created twice or replaced, and thousands of numbers


def build_within(build: Callable[[], EncoderDecoder], tensors: int, size: int, origin: str) -> EncoderDecoder:
    """Return the model that ``build`` makes; stop if it outgrows a stored model of ``tensors`` tensors and ``size`` bytes.

    A number takes a byte or more in a file. Parameters are registered before they are initialized, so a huge one costs
    address space only.
    """
    with _at_most(2 * tensors + _SPARE, 2 * size + 1000 * _SPARE, origin):
        try:
            return build()
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            raise _mismatch(origin, "its configuration describes a model that exceeds the memory") from None


@contextlib.contextmanager
def _at_most(parameters: int, numbers: int, origin: str) -> Iterator[None]:
    """Refuse to build a model with more parameters, or more numbers in them."""
    count = total = 0

    def counted(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, total
        count, total = count + 1, total + (0 if parameter is None else parameter.numel())
        if count > parameters or total > numbers:
            raise _mismatch(origin, "its configuration describes a larger model than the stored one")

    hook = register_module_parameter_registration_hook(counted)
    try:
        yield
    finally:
        hook.remove()


def _mismatch(origin: str, reason: str) -> UsageError:
    return UsageError(f"{origin} holds another architecture: {reason}")


def options_of(model: EncoderDecoder, sizes: VocabularySizes) -> tuple[Any, str]:
    """Return the options that build a model; or None and, in words, a part of the model that they do not describe.

    Refuse a tokenizer of other ``sizes`` than those that the model was built for.
    """
    if model.built_from is None:
        return None, f"this {type(model).__name__} was not built from options"
    options, own = model.built_from
    if own != sizes:
        raise UsageError(
            f"the model was built for {own.source:,} source and {own.target:,} target tokens, but the tokenizer has "
            f"{sizes.source:,} and {sizes.target:,}; give the tokenizer that it was built with"
        )
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        described = _structure(models.build(options, sizes))
    present = _structure(model)
    for name in sorted(described.keys() | present.keys()):
        if (part := present.get(name, "missing")) != (expected := described.get(name, "nothing of this name")):
            return None, f"{name or 'the model'} is {part}, but its options build {expected}"
    return options, ""


def _structure(model: EncoderDecoder) -> dict[str, str]:
    """Return the class of each module and the shape of each tensor, by name."""
    classes = {name: f"a {type(module).__qualname__}" for name, module in model.named_modules()}
    return classes | {name: f"of shape {form}" for name, form in forms_of(model.state_dict()).items()}

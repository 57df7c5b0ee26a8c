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


def options_of(model: EncoderDecoder, sizes: VocabularySizes) -> Any:
    """Return the options that build a model for a tokenizer of these ``sizes``. Refuse a model that they do not describe."""
    require_vocabularies(model, sizes)
    if (reason := undescribed_part(model)) is not None:
        raise UsageError(
            f"{reason}; a folder stores options and parameters only: register the model (docs/how-to/extend), and build it "
            f"with nmt.model"
        )
    assert model.built_from is not None
    return model.built_from[0]


def require_vocabularies(model: EncoderDecoder, sizes: VocabularySizes) -> None:
    """Refuse a tokenizer of other ``sizes`` than those that the model was built for."""
    if model.built_from is not None and model.built_from[1] != sizes:
        own, other = (
            f"{each.source:,} source and {each.target:,} target tokens" for each in (model.built_from[1], sizes)
        )
        raise UsageError(
            f"the model was built for {own}, but the tokenizer has {other}; give the tokenizer that it was built with"
        )


def undescribed_part(model: EncoderDecoder) -> str | None:
    """Return, in words, a part of the model that its options do not describe; None: they describe all parts."""
    if model.built_from is None:
        return f"this {type(model).__name__} was not built from options"
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        described = _structure(models.build(*model.built_from))
    present = _structure(model)
    for name in sorted(described.keys() | present.keys()):
        if (part := present.get(name, "missing")) != (expected := described.get(name, "nothing of this name")):
            return f"{name or 'the model'} is {part}, but its options build {expected}"
    return None


def _structure(model: EncoderDecoder) -> dict[str, str]:
    """Return the class of each module and the shape of each tensor, by name."""
    classes = {name: f"a {type(module).__qualname__}" for name, module in model.named_modules()}
    return classes | {name: f"of shape {form}" for name, form in forms_of(model.state_dict()).items()}

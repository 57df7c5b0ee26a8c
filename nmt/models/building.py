"""Building a model from a stored configuration, limited to the size of the stored parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from nmt.devices import is_shortage
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder

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

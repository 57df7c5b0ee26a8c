"""What numbers a model's weights are kept in while it translates."""

from __future__ import annotations

import torch

from nmt.config.choices import NumberFormat, Precision
from nmt.devices import parameter_type
from nmt.engines import Wanted
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder
from nmt.layers.weight_norm import with_fixed_weights
from nmt.native.library import library

_OF_PRECISION = {Precision.bf16: NumberFormat.bfloat16, Precision.fp16: NumberFormat.float16}
_PRECISIONS = {
    NumberFormat.float32: Precision.fp32,
    NumberFormat.bfloat16: Precision.bf16,
    NumberFormat.float16: Precision.fp16,
}


def format_named(name: NumberFormat | str | None) -> NumberFormat | None:
    """A format by its name, as Python code gives it."""
    if name is None or isinstance(name, NumberFormat):
        return name
    if name not in NumberFormat.__members__:
        raise UsageError(f"dtype={name!r} is none of {', '.join(NumberFormat.__members__)}")
    return NumberFormat[name]


def choose_format(wanted: NumberFormat | None, precision: Precision, device: torch.device) -> NumberFormat:
    """``wanted``, or else what ``precision`` stands for, where the device has it."""
    if wanted is None:
        parameter_type(device, precision)  # refuses what cannot be
        return _OF_PRECISION.get(precision, NumberFormat.float32)
    if wanted is NumberFormat.int8 and device.type != "cpu":
        raise UsageError("dtype int8 is for CPUs; on a GPU use --dtype bfloat16 or float16")
    if device.type == "cpu" and library() is None and wanted in (NumberFormat.int8, NumberFormat.float16):
        raise UsageError(
            f"dtype {wanted.value} on a CPU needs the C part of nmt, which was not built here or is switched off; "
            f"install nmt where there is a C compiler, or use --dtype float32"
        )
    if device.type != "cpu":
        parameter_type(device, _PRECISIONS[wanted])
    return wanted


def prepared(model: EncoderDecoder, wanted: Wanted) -> EncoderDecoder:
    """The model for torch: in float32 on a CPU, where other numbers would slow it down, as wanted on a GPU."""
    if wanted.device.type == "cpu":
        return with_fixed_weights(model)
    return with_fixed_weights(model.to(parameter_type(wanted.device, _PRECISIONS[wanted.number_format])))

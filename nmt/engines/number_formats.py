"""What numbers a model's weights are kept in while it translates."""

from __future__ import annotations

from nmt.config.choices import NumberFormat, Precision
from nmt.devices import kind_of, require_precision, require_translating
from nmt.errors import UsageError
from nmt.native.library import library

_OF_PRECISION = {Precision.bf16: NumberFormat.bfloat16, Precision.fp16: NumberFormat.float16}
PRECISIONS = {
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


def choose_format(wanted: NumberFormat | None, precision: Precision, device: str) -> NumberFormat:
    """``wanted``, or else what ``precision`` stands for, where the device has it."""
    if wanted is None:
        require_translating(device, precision)
        return _OF_PRECISION.get(precision, NumberFormat.float32)
    if wanted is NumberFormat.int8 and kind_of(device) != "cpu":
        raise UsageError("dtype int8 is for CPUs; on a GPU use --dtype bfloat16 or float16")
    if kind_of(device) == "cpu" and library() is None and wanted in (NumberFormat.int8, NumberFormat.float16):
        raise UsageError(
            f"dtype {wanted.value} on a CPU needs the C part of nmt, which was not built here or is switched off; "
            f"install nmt where there is a C compiler, or use --dtype float32"
        )
    if kind_of(device) != "cpu":
        require_precision(device, PRECISIONS[wanted])
    return wanted

"""A model as torch translates with it."""

from __future__ import annotations

from nmt.devices import kind_of, parameter_type
from nmt.engines import Wanted
from nmt.engines.number_formats import PRECISIONS
from nmt.interface import EncoderDecoder
from nmt.layers.linear import with_fixed_weights


def prepared(model: EncoderDecoder, wanted: Wanted) -> EncoderDecoder:
    """In float32 on a CPU, where other numbers would slow it down, as wanted on a GPU."""
    if kind_of(wanted.device) == "cpu":
        return with_fixed_weights(model)
    return with_fixed_weights(model.to(parameter_type(wanted.device, PRECISIONS[wanted.number_format])))

"""Split batches that do not fit into memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from nmt.devices import is_shortage
from nmt.errors import DeviceError
from nmt.search.decoding import Engine
from nmt.translation.source_windows import Batch

logger = logging.getLogger("nmt.translation")

Result = TypeVar("Result")


def in_halves(
    work: Callable[[Batch], list[Result]], batch: Batch, members: Sequence[Engine], advice: str
) -> list[Result]:
    """Return the result of ``work`` for each part of a batch, which is halved until it fits.

    ``advice``: what to lower if a single line does not fit.
    """
    device = members[0].device
    try:
        return work(batch)
    except Exception as error:
        if not isinstance(error, MemoryError) and not is_shortage(error):
            raise
        if len(batch) == 1:
            elsewhere = "" if device == "cpu" else ", or use --device cpu"
            raise DeviceError(
                f"line {batch[0].number + 1} ({batch[0].pieces} tokens) does not fit into the memory of {device}; "
                f"{advice}{elsewhere}"
            ) from None
    logger.warning(f"a batch of {len(batch)} lines does not fit into the memory of {device}; splitting it into halves")
    for member in members:
        member.forget()
    middle = len(batch) // 2
    return [result for half in (batch[:middle], batch[middle:]) for result in in_halves(work, half, members, advice)]

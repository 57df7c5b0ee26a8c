"""Batches that do not fit into the memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from nmt.devices import is_shortage
from nmt.errors import DeviceError
from nmt.search.decoding import Engine
from nmt.translation.reading import Batch

logger = logging.getLogger("nmt.translation")

Found = TypeVar("Found")


def in_halves(
    work: Callable[[Batch], list[Found]], batch: Batch, members: Sequence[Engine], advice: str
) -> list[Found]:
    """What ``work`` finds for each part of a batch, which is halved until it fits. ``advice``: what to lower if a line alone
    does not."""
    device = members[0].device
    try:
        return work(batch)
    except Exception as error:
        if not isinstance(error, MemoryError) and not is_shortage(error):
            raise
        if len(batch) == 1:
            elsewhere = "" if device == "cpu" else ", or use --device cpu"
            raise DeviceError(
                f"line {batch[0].number + 1} ({batch[0].pieces} pieces) does not fit into the memory of {device}; "
                f"{advice}{elsewhere}"
            ) from None
    logger.warning(f"a batch of {len(batch)} lines does not fit into the memory of {device}; it is halved")
    for member in members:
        member.forget()
    middle = len(batch) // 2
    return [found for half in (batch[:middle], batch[middle:]) for found in in_halves(work, half, members, advice)]

"""Copies from a device to the CPU: many tensors at once, and a few numbers that arrive later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

MOST_PACKED = 2**26  # bytes that are copied together; the device needs as much memory more meanwhile


class Arriving:
    """Numbers on their way to the CPU."""

    def __init__(self, numbers: Tensor, copied: torch.Event | None) -> None:
        self._numbers, self._copied = numbers, copied

    def wait(self) -> Tensor:
        """Return the numbers, once they are there."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._numbers


def in_one_copy(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors of a device to the CPU, packed."""
    parts = [tensor.contiguous().flatten().view(torch.uint8) for tensor in tensors]
    packed = (parts[0] if len(parts) == 1 else torch.cat(parts)).cpu()
    pieces = torch.split(packed, [len(part) for part in parts])
    return [piece.clone().view(tensor.dtype).view(tensor.shape) for piece, tensor in zip(pieces, tensors)]


def groups(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors in groups of up to ``MOST_PACKED`` bytes."""
    group, size = list[Tensor](), 0
    for tensor in tensors:
        if group and size + tensor.nbytes > MOST_PACKED:
            yield group
            group, size = [], 0
        group.append(tensor)
        size += tensor.nbytes
    if group:
        yield group

"""From the encoder's last states to the states that a recurrent decoder starts from.

Shapes: B sentences, P parts of a state, H sizes of the encoder's states and of the decoder's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn

from nmt.models.recurrent.layers import States


class Bridge(nn.Module, ABC):
    """The encoder's last states by layer [B, P, H] -> the decoder's first states by layer [B, P, H]."""

    @abstractmethod
    def forward(self, last: States) -> States: ...


class CopyBridge(Bridge):
    """Each layer starts where the encoder's layer of the same number ended: Sutskever et al. 2014."""

    def forward(self, last: States) -> States:
        return last


class ZeroBridge(Bridge):
    """The decoder starts from nothing: the source comes in through attention alone."""

    def __init__(self, num_layers: int, parts: int, size: int) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size = num_layers, parts, size

    def forward(self, last: States) -> States:
        return tuple(last[-1].new_zeros(last[-1].size(0), self.parts, self.size) for _ in range(self.num_layers))


class DenseBridge(Bridge):
    """tanh(W h) of the encoder's last state: Bahdanau et al. 2015, section A.2.2, where h is the backward direction's.

    ``first``: where that part of h begins. Every layer, and every part of its state, has a W of its own.
    """

    def __init__(self, encoder_size: int, num_layers: int, parts: int, size: int, first: int = 0) -> None:
        super().__init__()
        self.num_layers, self.parts, self.size, self.first = num_layers, parts, size, first
        self.linear = nn.Linear(encoder_size - first, num_layers * parts * size, bias=False)

    def forward(self, last: States) -> States:
        h = last[-1][:, 0, self.first :]
        started = torch.tanh(self.linear(h)).view(-1, self.num_layers, self.parts, self.size)
        return tuple(started.unbind(1))

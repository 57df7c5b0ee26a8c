"""The last linear map, hidden states to scores over the vocabulary, that architectures share.

Shapes: D width of the hidden states, V vocabulary.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.interface import OutputLayer
from nmt.modules.embeddings import Embedding


class LinearOutput(OutputLayer):
    """A matrix [V, D] of its own, with or without bias [V]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight, self.bias)

    def restrict(self, vocabulary: Tensor) -> OutputLayer:
        bias = None if self.bias is None else self.bias.detach()[vocabulary]
        return LinearOutput(self.weight.detach()[vocabulary], bias)

    def linear(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias


class TiedOutput(OutputLayer):
    """The matrix of an embedding, which owns it: Press and Wolf 2017; Vaswani et al. 2017, section 3.4."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self._embedding = (embedding,)  # a tuple, so that a saved model holds the matrix once

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self._embedding[0].weight)

    def restrict(self, vocabulary: Tensor) -> OutputLayer:
        return LinearOutput(self._embedding[0].weight.detach()[vocabulary])

    def linear(self) -> tuple[Tensor, Tensor | None]:
        return self._embedding[0].weight, None

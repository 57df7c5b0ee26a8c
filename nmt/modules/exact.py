"""Sums whose last bits matter.

Padding, and whatever else is in a batch, decides in which order floats are added, and so the last bit of a sum. Where the
rows of a product are rounded (to integers, or to bf16 for tiles) that bit is enough now and then to round a number another
way, which changes what follows by far more.
"""

from __future__ import annotations

from torch import nn


class Exact(nn.Module):
    """A module that adds over the positions of a sentence, if need be in float64, whose last bits are lost in float32."""

    exactly = False
    entirely = False  # set it: its linear layers are not to be packed, they too are in float64

    def be_exact(self) -> None:
        self.exactly = True
        self.double()

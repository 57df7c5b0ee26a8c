"""Linear layers whose weights are packed for translating (nmt.native.packing). A model that has them cannot be trained.

Shapes: K inputs, N outputs.
"""

from __future__ import annotations

from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.modules.linear import Linear
from nmt.modules.plain import Function
from nmt.native.packing import Packed


class PackedLinear(nn.Module):
    """[..., K] -> [..., N]"""

    def __init__(self, linear: nn.Linear, number_format: NumberFormat) -> None:
        super().__init__()
        self.packed = Packed(linear.weight, linear.bias, number_format)

    def forward(self, x: Tensor) -> Tensor:
        return self.packed(x)

    def plain(self) -> Function:
        return self.packed.__call__


def pack_linear_layers(module: nn.Module, number_format: NumberFormat) -> None:
    """Pack the layers inside ``module``, in place."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and type(child) in (Linear, nn.Linear):
            setattr(module, name, PackedLinear(child, number_format))
        else:
            pack_linear_layers(child, number_format)

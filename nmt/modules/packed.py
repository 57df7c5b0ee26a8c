"""Layers whose weights are packed for translating (nmt.native.packing). A model that has them cannot be trained.

Shapes: K inputs, N outputs, n tokens, D width, k experts a token.
"""

from __future__ import annotations

from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.modules.exact import Exact
from nmt.modules.experts import Experts, Routing
from nmt.modules.linear import Linear
from nmt.modules.plain import Function
from nmt.modules.recurrent import RecurrentLayer
from nmt.native.packing import Packed, rounds_rows


class PackedLinear(nn.Module):
    """[..., K] -> [..., N]"""

    plain_asks = frozenset[str]()

    def __init__(self, linear: nn.Linear, number_format: NumberFormat) -> None:
        super().__init__()
        self.packed = Packed(linear.weight, linear.bias, number_format)

    def forward(self, x: Tensor) -> Tensor:
        return self.packed(x)

    def plain(self) -> Function:
        return self.packed.__call__


class PackedExperts(nn.Module):
    """What ``Experts`` answer, each expert's tokens in a product of their own."""

    def __init__(self, experts: Experts, number_format: NumberFormat) -> None:
        super().__init__()
        self.inner = [
            Packed(weight.T, bias[0], number_format) for weight, bias in zip(experts.inner, experts.inner_bias)
        ]
        self.outer = [
            Packed(weight.T, bias[0], number_format) for weight, bias in zip(experts.outer, experts.outer_bias)
        ]

    def forward(self, x: Tensor, routing: Routing) -> Tensor:
        """[n, D] -> [n, D]"""
        mixed = x.new_zeros(x.shape)
        for expert in sorted(set(routing.experts.flatten().tolist())):
            tokens, places = (routing.experts == expert).nonzero(as_tuple=True)
            answers = self.outer[expert](self.inner[expert](x[tokens], relu=True))
            mixed[tokens] += answers * routing.weights[tokens, places, None]
        return mixed


def pack_linear_layers(module: nn.Module, number_format: NumberFormat) -> None:
    """Pack the layers inside ``module``, in place, and the experts of mixtures; where rows are rounded recurrent layers as
    well, so that no last bit of theirs rounds another way."""
    if rounds_rows(number_format):
        if isinstance(module, RecurrentLayer):  # others may be of any kind: several layers, both directions
            module.pack()
            return
        if isinstance(module, Exact):
            module.be_exact()
            if module.entirely:
                return
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear) and type(child) in (Linear, nn.Linear):
            setattr(module, name, PackedLinear(child, number_format))
        elif type(child) is Experts:
            setattr(module, name, PackedExperts(child, number_format))
        else:
            pack_linear_layers(child, number_format)

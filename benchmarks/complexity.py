"""Table 1 of "Attention Is All You Need", measured: the cost of one layer by the length of the sequence.

    python benchmarks/complexity.py --output benchmarks/results

Writes complexity.csv there, and with matplotlib complexity.png, and prints two Markdown tables.

Time and memory: the exponent b of cost = a * length^b, fitted from 1,024 positions on, next to the order of the paper.
Memory is the peak of live tensors in a forward and a backward pass.

Sequential operations and the maximum path length are counted at small lengths from the computation itself. The first
is the longest chain of operations that wait for each other in the graph of the gradient. The second is the number of
stacked layers until each position depends on every other one (as the gradient of one layer shows), times the chain
inside a layer.

Shapes: one sequence of T positions, d channels.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from live_bytes import LiveBytes
from torch import Tensor, nn

from nmt.models.convolutional.convolution import CausalConvolution, SameConvolution
from nmt.models.recurrent.layers import LSTMLayer
from nmt.models.transformer.attention import Attend, ScaledDotProduct, SelfAttention
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.local_attention import LocalSelfAttention
from nmt.models.transformer.mask import Mask

WIDTH = 64
KERNEL = 3
NEIGHBORHOOD = 16
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
FITTED_FROM = 1024
COUNTED = (128, 256, 512)  # lengths at which operations and paths are counted; shorter ones use other kernels


class Attention(nn.Module):
    """Self-attention of one head, over everything or over a neighborhood."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        padding = x.new_zeros(x.size(0), 1, 1, x.size(1))
        attended: Tensor = self.attention(x, self.attention.padding_mask(padding), None)
        return attended


class WrittenOut(ScaledDotProduct):
    """Equation 1, with the matrix of all scores. The fused kernel for long sequences never holds this matrix."""

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None) -> Tensor:
        return Attend.forward(self, queries, keys, values, mask, record)


class Recurrence(nn.Module):
    """One LSTM layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = LSTMLayer(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.over_sentences(x, torch.tensor([x.size(1)]))[0]


class Convolution(nn.Module):
    """All channels of k positions at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SameConvolution(nn.Linear(KERNEL * WIDTH, WIDTH), KERNEL)

    def forward(self, x: Tensor) -> Tensor:
        convolved: Tensor = self.layer(x, torch.zeros(x.size(0), x.size(1), 1, dtype=torch.bool))
        return convolved


class DilatedConvolution(nn.Module):
    """All channels of k positions that are k^height apart, up to the output's position as in a decoder.

    A convolution over both sides would leave gaps: near an end of the sequence, some paths would leave the sequence.
    """

    def __init__(self, height: int = 0) -> None:
        super().__init__()
        self.layer = CausalConvolution(nn.Linear(KERNEL * WIDTH, WIDTH), KERNEL, KERNEL**height)

    def forward(self, x: Tensor) -> Tensor:
        convolved: Tensor = self.layer(x)[0]
        return convolved


class SeparableConvolution(nn.Module):
    """Each channel of k positions separately, then all channels of one position."""

    def __init__(self) -> None:
        super().__init__()
        self.by_channel = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.by_position = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.by_position(self.by_channel(x.transpose(1, 2)).transpose(1, 2))
        return mixed


def _heads() -> HeadSizes:
    return HeadSizes(WIDTH, 1, WIDTH, WIDTH)


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    order: str  # in the paper
    theory: int  # exponent of the length in the order
    make: Callable[[], nn.Module]
    sequential: str = "1"  # sequential operations in the paper
    path: str = "1"  # maximum path length in the paper
    causal: bool = False  # a position depends only on itself and earlier ones
    stacked: Callable[[int], nn.Module] | None = None  # layer at a height of a stack; None: all are equal


def _self_attention(attend: Attend) -> nn.Module:
    return Attention(SelfAttention(_heads(), False, attend))


KINDS = (
    Kind("self-attention", "n^2 d", 2, lambda: _self_attention(ScaledDotProduct(0.0))),
    Kind("self-attention, products written out", "n^2 d", 2, lambda: _self_attention(WrittenOut(0.0))),
    Kind("recurrent", "n d^2", 1, Recurrence, sequential="n", path="n", causal=True),
    Kind("convolutional", "k n d^2", 1, Convolution, path="n / k"),
    Kind(
        "convolutional, dilated",
        "k n d^2",
        1,
        DilatedConvolution,
        path="log_k n",
        causal=True,
        stacked=DilatedConvolution,
    ),
    Kind("separable convolutional", "k n d + n d^2", 1, SeparableConvolution, path="n / k"),
    Kind(
        "restricted self-attention",
        "r n d",
        1,
        lambda: Attention(LocalSelfAttention(NEIGHBORHOOD, _heads(), False, ScaledDotProduct(0.0))),
        path="n / r",
    ),
)
# Dilation does not change the cost: at height 0, the dilated layer is the plain one.
TIMED = tuple(kind for kind in KINDS if kind.stacked is None)


@dataclass(frozen=True)
class Cost:
    """Time and memory of one layer at one length, on one thread."""

    kind: str
    length: int
    forward: float  # seconds
    both: float  # seconds, forward and backward
    memory: float  # bytes


def measure(kind: Kind, length: int, repeats: int) -> Cost:
    torch.manual_seed(1)
    layer, x = kind.make(), torch.randn(1, length, WIDTH)
    with LiveBytes() as live:
        layer(x).sum().backward()

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    return Cost(
        kind.name,
        length,
        _median(forward, repeats),
        _median(lambda: layer(x).sum().backward(), repeats),
        float(live.peak),
    )


def _median(work: Callable[[], object], repeats: int) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        start = time.process_time()  # CPU time: other programs hardly change it
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """Return b of a * length^b, by least squares over the logarithms."""
    slope, _ = np.polyfit(np.log(lengths), np.log(values), 1)
    return float(slope)


def sequential_operations(kind: Kind, length: int) -> int:
    """Return the number of operations on the longest chain from the output back to the input.

    A fused kernel counts as one operation.
    """
    with torch.backends.mkldnn.flags(enabled=False):  # mkldnn computes a whole recurrence in one call
        output = kind.make()(torch.randn(1, length, WIDTH, requires_grad=True))
    depth: dict[object, int] = {}
    waiting = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]
        if unknown := [other for other in before if other not in depth]:
            waiting.extend(unknown)
            continue
        depth[waiting.pop()] = 1 + max((depth[other] for other in before), default=0)
    return depth[output.grad_fn]


def layers_until_all_is_seen(kind: Kind, length: int) -> int:
    """Return the number of stacked layers until every position depends on all positions that it can depend on."""
    wanted = np.ones((length, length), dtype=bool)
    if kind.causal:
        wanted = np.tril(wanted)
    height, reached, seen = 0, np.eye(length, dtype=bool), _seen(kind.make(), length)
    while not (reached >= wanted).all():
        if kind.stacked is not None:
            seen = _seen(kind.stacked(height), length)
        reached = seen @ reached
        height += 1
    return height


def _seen(layer: nn.Module, length: int) -> np.ndarray:
    """Return whether an output (row) of a layer depends on an input (column), by its gradient. [T, T]"""
    torch.manual_seed(1)
    x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    output = layer.double()(x)
    rows = []
    for position in range(length):
        (gradient,) = torch.autograd.grad(output[0, position] @ torch.randn_like(x[0, 0]), x, retain_graph=True)
        rows.append((gradient[0] != 0).any(1).numpy())
    return np.stack(rows)


def paths() -> str:
    """Return the second table: counts at the shortest and the longest length, and their growth."""
    first, last = COUNTED[0], COUNTED[-1]
    lines = [
        f"| layer | sequential operations in the paper | longest chain for n = {first}, {last} | growth "
        f"| maximum path in the paper | layers for n = {first}, {last} | growth of layers x chain |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        chain = [sequential_operations(kind, length) for length in COUNTED]
        layers = [layers_until_all_is_seen(kind, length) for length in COUNTED]
        path = [many * operations for many, operations in zip(layers, chain)]
        lines.append(
            f"| {kind.name} | {kind.sequential} | {chain[0]}, {chain[-1]} | {_growth(chain)} "
            f"| {kind.path} | {layers[0]}, {layers[-1]} | {_growth(path)} |"
        )
    return "\n".join(lines)


def _growth(counts: Sequence[int]) -> str:
    return f"n^{round(exponent(COUNTED, counts), 2) + 0.0:.2f}"  # no -0.00


def table(costs: Sequence[Cost]) -> str:
    lines = [
        f"| layer (d = {WIDTH}) | complexity in the paper | forward | forward and backward | memory |",
        "|---|---|---|---|---|",
    ]
    for kind in TIMED:
        fitted = [cost for cost in costs if cost.kind == kind.name and cost.length >= FITTED_FROM]
        lengths = [cost.length for cost in fitted]
        powers = [
            exponent(lengths, [getattr(cost, figure) for cost in fitted]) for figure in ("forward", "both", "memory")
        ]
        lines.append(f"| {kind.name} | {kind.order}: {kind.theory} | " + " | ".join(f"{b:.2f}" for b in powers) + " |")
    return "\n".join(lines)


def plot(costs: Sequence[Cost], path: Path) -> None:
    import matplotlib  # imported here, since the tables do not need it

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = {"forward": "forward, CPU s", "both": "forward and backward, CPU s", "memory": "peak memory, bytes"}
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 4.5), layout="constrained")
    for axis, (name, title) in zip(axes, panels.items()):
        for kind in TIMED:
            mine = [cost for cost in costs if cost.kind == kind.name]
            values = [getattr(cost, name) for cost in mine]
            axis.loglog([cost.length for cost in mine], values, marker="o", markersize=3, label=kind.name)
        axis.set_title(title)
        axis.set_xlabel("length")
        axis.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure time and memory of one layer by sequence length.")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="folder for the table and plot")
    parser.add_argument("--repeats", type=int, default=15, help="timings, of which the median is reported")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    # Kinds take turns at each length, so that a slow minute of the machine affects all of them.
    costs = [measure(kind, length, arguments.repeats) for length in LENGTHS for kind in TIMED]
    with open(arguments.output / "complexity.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["layer", "length", "forward_seconds", "forward_and_backward_seconds", "peak_bytes"])
        writer.writerows([cost.kind, cost.length, cost.forward, cost.both, cost.memory] for cost in costs)
    print(f"{table(costs)}\n\n{paths()}", flush=True)
    try:
        plot(costs, arguments.output / "complexity.png")
    except ImportError:
        print("complexity.png was not drawn: it needs matplotlib (pip install '.[plots]')", file=sys.stderr)


if __name__ == "__main__":
    main()

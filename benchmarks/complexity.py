"""Table 1 of "Attention Is All You Need", measured: time and memory of one layer by the length of the sequence.

    python benchmarks/complexity.py --output benchmarks/results

Writes complexity.csv and complexity.png there and prints a Markdown table: the exponent b of cost = a * length^b, fitted
from 1,024 positions up, beside the order that the paper gives. Memory is the peak of live tensors in a forward and a
backward pass. Shapes: one sequence of T positions, d channels.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import Tensor, nn

from nmt.modules.attention import HeadSizes, ScaledDotProduct, SelfAttention
from nmt.modules.convolution import SameConvolution
from nmt.modules.local_attention import LocalSelfAttention
from nmt.modules.recurrent import LSTMLayer
from nmt.testing.live_bytes import LiveBytes

matplotlib.use("Agg")
from matplotlib import pyplot as plt

WIDTH = 64
KERNEL = 3
NEIGHBOURHOOD = 16
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
FITTED_FROM = 1024


class Attention(nn.Module):
    """Self-attention of one head, over everything or over a neighbourhood."""

    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        padding = x.new_zeros(x.size(0), 1, 1, x.size(1))
        attended: Tensor = self.attention(x, self.attention.around(padding), None)
        return attended


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


class SeparableConvolution(nn.Module):
    """Each channel of k positions by itself, then all channels of one position."""

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
    order: str  # as the paper has it
    theory: int  # the exponent of the length in it
    make: Callable[[], nn.Module]


KINDS = (
    Kind("self-attention", "n^2 d", 2, lambda: Attention(SelfAttention(_heads(), False, ScaledDotProduct(0.0)))),
    Kind("recurrent", "n d^2", 1, Recurrence),
    Kind("convolutional", "k n d^2", 1, Convolution),
    Kind("separable convolutional", "k n d + n d^2", 1, SeparableConvolution),
    Kind(
        "restricted self-attention",
        "r n d",
        1,
        lambda: Attention(LocalSelfAttention(NEIGHBOURHOOD, _heads(), False, ScaledDotProduct(0.0))),
    ),
)


@dataclass(frozen=True)
class Cost:
    """What one layer took at one length, on one thread."""

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
        start = time.process_time()  # of the CPU: other programs hardly change it
        work()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """b of a * length^b, by least squares over the logarithms."""
    slope, _ = np.polyfit(np.log(lengths), np.log(values), 1)
    return float(slope)


def table(costs: Sequence[Cost]) -> str:
    lines = [
        f"| layer (d = {WIDTH}) | order in the paper | forward | forward and backward | memory |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        fitted = [cost for cost in costs if cost.kind == kind.name and cost.length >= FITTED_FROM]
        lengths = [cost.length for cost in fitted]
        powers = [
            exponent(lengths, [getattr(cost, figure) for cost in fitted]) for figure in ("forward", "both", "memory")
        ]
        lines.append(f"| {kind.name} | {kind.order}: {kind.theory} | " + " | ".join(f"{b:.2f}" for b in powers) + " |")
    return "\n".join(lines)


def plot(costs: Sequence[Cost], path: Path) -> None:
    panels = {"forward": "forward, CPU s", "both": "forward and backward, CPU s", "memory": "peak memory, bytes"}
    figure, axes = plt.subplots(1, len(panels), figsize=(15, 4.5), layout="constrained")
    for axis, (name, title) in zip(axes, panels.items()):
        for kind in KINDS:
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
    parser = argparse.ArgumentParser(description="Time and memory of one layer by the length of the sequence.")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"), help="folder for the table and plot")
    parser.add_argument("--repeats", type=int, default=15, help="timings of which the median counts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.mkdir(parents=True, exist_ok=True)
    # Kinds take turns at each length, so that a slow minute of the machine meets all of them.
    costs = [measure(kind, length, arguments.repeats) for length in LENGTHS for kind in KINDS]
    with open(arguments.output / "complexity.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["layer", "length", "forward_seconds", "forward_and_backward_seconds", "peak_bytes"])
        writer.writerows([cost.kind, cost.length, cost.forward, cost.both, cost.memory] for cost in costs)
    plot(costs, arguments.output / "complexity.png")
    print(table(costs))


if __name__ == "__main__":
    main()

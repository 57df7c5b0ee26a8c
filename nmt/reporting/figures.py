"""The figures of training: sums over updates, their means, and numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SUMMED = ("loss", "nll", "denominator", "tokens", "sentences", "grad_norm", "seconds")


@dataclass(frozen=True)
class UpdateReport:
    """One update, as sums over its tokens."""

    loss: float = 0.0
    nll: float = 0.0
    denominator: float = 0.0
    tokens: int = 0
    sentences: int = 0
    grad_norm: float = 0.0
    learning_rate: float = 0.0
    seconds: float = 0.0
    auxiliary: Mapping[str, float] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass(frozen=True)
class Meters(UpdateReport):
    """The sums of the updates since the last event of the log; the learning rate is the last one's. A checkpoint keeps them,
    so that a continued run writes the events of an uninterrupted one."""

    updates: int = 0

    def plus(self, report: UpdateReport) -> Meters:
        sums = {name: getattr(self, name) + getattr(report, name) for name in _SUMMED}
        names = {**self.auxiliary, **report.auxiliary}
        auxiliary = {name: self.auxiliary.get(name, 0.0) + report.auxiliary.get(name, 0.0) for name in names}
        return Meters(**sums, learning_rate=report.learning_rate, auxiliary=auxiliary, updates=self.updates + 1)

    def means(self, update: int, epoch: int, memory_mb: float, seconds: float) -> dict[str, Any]:
        """As an event of the log keeps them, in nats: losses per denominator (tokens, as a rule), the likelihood per token;
        the most memory held and the seconds of training so far."""
        nll = self.nll / max(1, self.tokens)
        denominator = max(1.0, self.denominator)
        return {
            "update": update,
            "epoch": epoch,
            "loss": self.loss / denominator,
            "nll": nll,
            "ppl": perplexity(nll),
            "lr": self.learning_rate,
            "grad_norm": self.grad_norm / max(1, self.updates),
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / max(self.seconds, 1e-9), 1),
            "memory_mb": memory_mb,
            "seconds": seconds,
            **{f"auxiliary_{name}": value / denominator for name, value in self.auxiliary.items()},
        }


def perplexity(nll: float) -> float:
    """exp(nll), kept within what a float holds."""
    return math.exp(min(nll, 700.0))


def short(value: float) -> str:
    """A number in few letters: 0.00071, 3.14, 1,500, 45k, 2.1M."""
    if 1000 <= abs(value) < 10_000:
        return f"{value:,.0f}"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e12:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def figure(value: float) -> str:
    """A number with about four digits."""
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """As h:mm:ss."""
    minutes, whole = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"


def megabytes(value: float) -> str:
    """Millions of bytes, in MB or GB."""
    return f"{value / 1000:.1f} GB" if value >= 1000 else f"{value:.0f} MB"


def scientific(value: float) -> str:
    """As 1.234 x 10^15."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}\u00a0\u00d7\u00a010^{int(exponent)}"

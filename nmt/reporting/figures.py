"""Figures of training: sums over updates, and their means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_SUMMED = ("loss", "nll", "denominator", "tokens", "sentences", "weight", "grad_norm", "seconds")


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
    weight: float = 0.0  # sum of the weights of the tokens; 0: the tokens have no weights

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)

    @property
    def is_weightless(self) -> bool:
        """Whether all weights of its tokens are 0, so that it changes nothing."""
        return self.tokens > 0 and self.denominator == 0

    def figures(self) -> dict[str, float]:
        """Return losses in nats per denominator (usually tokens), nll per token, and the sums that others refer to."""
        nll, denominator = self.nll / (self.weight or self.tokens or 1), self.denominator or 1.0
        return {
            "loss": self.loss / denominator,
            "nll": nll,
            "ppl": perplexity(nll),
            "lr": self.learning_rate,
            "grad_norm": self.grad_norm,
            "tokens": float(self.tokens),
            "seconds": self.seconds,
            **{f"auxiliary_{name}": value / denominator for name, value in self.auxiliary.items()},
        }


@dataclass(frozen=True)
class Meters(UpdateReport):
    """Sums over the updates since the last event of the log, and the last learning rate.

    A checkpoint stores them, so that a resumed run writes the events of an uninterrupted one.
    """

    updates: int = 0
    largest_grad_norm: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last values that callbacks added

    def plus(self, report: UpdateReport) -> Meters:
        sums = {name: getattr(self, name) + getattr(report, name) for name in _SUMMED}
        largest = max(self.largest_grad_norm, report.grad_norm)
        names = {**self.auxiliary, **report.auxiliary}
        auxiliary = {name: self.auxiliary.get(name, 0.0) + report.auxiliary.get(name, 0.0) for name in names}
        return Meters(
            **sums,
            learning_rate=report.learning_rate,
            auxiliary=auxiliary,
            updates=self.updates + 1,
            largest_grad_norm=largest,
            metrics=self.metrics,
        )

    def means(self, update: int, epoch: int, memory_mb: float, seconds: float) -> dict[str, Any]:
        """Return the figures of an event of the log, and the metrics that callbacks added.

        ``memory_mb``: peak memory; ``seconds``: training time so far.
        """
        return {
            "update": update,
            "epoch": epoch,
            **self.figures(),
            "grad_norm": self.grad_norm / max(1, self.updates),
            "largest_grad_norm": self.largest_grad_norm,
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / max(self.seconds, 1e-9), 1),
            "memory_mb": memory_mb,
            "seconds": seconds,
            **self.metrics,
        }


def perplexity(nll: float) -> float:
    """Return exp(nll), limited to what a float can hold."""
    return math.exp(min(nll, 700.0))

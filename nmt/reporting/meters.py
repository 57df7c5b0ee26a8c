"""Sums over the updates since the last line of the log. They are part of a checkpoint, so that a continued run prints
the lines of the uninterrupted one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class UpdateReport:
    """One update, as sums over its tokens."""

    loss: float
    nll: float
    denominator: float
    tokens: int
    sentences: int
    grad_norm: float
    learning_rate: float
    seconds: float
    auxiliary: Mapping[str, float] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


@dataclass
class Meters:
    """Running sums; means are taken when a line is written."""

    loss: float = 0.0
    nll: float = 0.0
    denominator: float = 0.0
    tokens: int = 0
    sentences: int = 0
    grad_norm: float = 0.0
    learning_rate: float = 0.0  # of the last update
    seconds: float = 0.0
    updates: int = 0
    auxiliary: dict[str, float] = field(default_factory=dict)

    def add(self, report: UpdateReport) -> None:
        self.loss += report.loss
        self.nll += report.nll
        self.denominator += report.denominator
        self.tokens += report.tokens
        self.sentences += report.sentences
        self.grad_norm += report.grad_norm
        self.learning_rate = report.learning_rate
        self.seconds += report.seconds
        self.updates += 1
        for name, value in report.auxiliary.items():
            self.auxiliary[name] = self.auxiliary.get(name, 0.0) + value

    def means(self) -> dict[str, Any]:
        """The figures of a line. Losses are per denominator (tokens, as a rule), the likelihood per token, in nats."""
        nll = self.nll / max(1, self.tokens)
        figures = {
            "loss": self.loss / max(1.0, self.denominator),
            "nll": nll,
            "ppl": perplexity(nll),
            "lr": self.learning_rate,
            "grad_norm": self.grad_norm / max(1, self.updates),
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / max(self.seconds, 1e-9), 1),
        }
        return figures | {
            f"auxiliary_{name}": value / max(1.0, self.denominator) for name, value in self.auxiliary.items()
        }

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        for member in fields(self):
            setattr(self, member.name, state[member.name])


def perplexity(nll: float) -> float:
    """exp(nll), kept within what a float holds."""
    return math.exp(min(nll, 700.0))

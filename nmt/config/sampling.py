"""How several corpora are mixed, and from when on."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.option import ShortRepr, option
from nmt.errors import UsageError


@dataclass(frozen=True)
class Mix:
    """Shares of the corpora among the sentences of an epoch: ``weights``, or by size at a ``temperature``; with neither,
    every sentence of all corpora once."""

    weights: tuple[float, ...] = ()
    temperature: float | None = None

    def __str__(self) -> str:
        if self.temperature is not None:
            return f"temperature {self.temperature:g}"
        if not self.weights:
            return "every sentence once"
        return f"weights {' '.join(f'{weight:g}' for weight in self.weights)}"


@dataclass(frozen=True)
class LaterMix:
    """A mix that begins at an update or at an epoch; the other one is None."""

    mix: Mix
    update: int | None
    epoch: int | None


_STAGE = re.compile(r"(?P<unit>update|epoch) (?P<number>[1-9]\d*): *(?P<mix>.*)")


@dataclass
class CorpusSamplingConfig(ShortRepr):
    """How several corpora are mixed. Without any of these options an epoch has every sentence of all of them once."""

    weights: list[float] = option(
        [],
        help="Sampling weight of each corpus or direction, such as 3,1; empty: --sampling-temperature, or every pair once",
        flag="--sampling-weights",
    )
    temperature: float | None = option(
        None,
        help="Temperature T for sampling by corpus size^(1/T); 1: proportional to size, larger: closer to "
        "uniform; null: no temperature",
        flag="--sampling-temperature",
    )
    stages: list[str] = option(
        [],
        help="Later sampling stages, comma-separated: 'update 20000: 1 0 0' (weights), 'epoch 5: "
        "temperature 5' or 'epoch 9: all' (every pair once)",
        flag="--sampling-stages",
    )

    def __post_init__(self) -> None:
        if self.weights and self.temperature is not None:
            raise UsageError(
                f"sampling.temperature={self.temperature:g} and sampling.weights={self.weights} exclude each other; give "
                f"one of --sampling-temperature and --sampling-weights"
            )
        require_positive("sampling", temperature=self.temperature)
        _require_weights("sampling.weights", self.weights)
        before = {"update": 1, "epoch": 1}
        for text, later in zip(self.stages, self.later_mixes()):
            unit, number = ("update", later.update) if later.update is not None else ("epoch", later.epoch or 0)
            if number <= before[unit]:
                reason = (
                    "the previous stage does not begin earlier"
                    if before[unit] > 1
                    else f"training starts with {unit} 1"
                )
                raise UsageError(f"sampling.stages: '{text}' begins too early: {reason} (--sampling-stages)")
            before[unit] = number

    @property
    def is_on(self) -> bool:
        """Whether an epoch differs from every sentence once."""
        return bool(self.weights or self.stages) or self.temperature is not None

    @property
    def first(self) -> Mix:
        return Mix(tuple(self.weights), self.temperature)

    def later_mixes(self) -> list[LaterMix]:
        return [_later(text) for text in self.stages]


def _later(text: str) -> LaterMix:
    stage = _STAGE.fullmatch(" ".join(text.split()))
    if stage is None:
        raise UsageError(
            f"sampling.stages: '{text}' is not a stage; write 'update N: MIX' or 'epoch N: MIX', where MIX is the weights "
            f"of the corpora (1 0), 'temperature T' or 'all' (--sampling-stages)"
        )
    update, epoch = (int(stage["number"]) if stage["unit"] == unit else None for unit in ("update", "epoch"))
    first, *rest = stage["mix"].split() or [""]
    if (first, *rest) == ("all",):
        return LaterMix(Mix(), update, epoch)
    numbers = rest if first == "temperature" else [first, *rest]
    try:
        values = tuple(map(float, numbers))
    except ValueError:
        values = ()
    if not values or (first == "temperature" and len(values) > 1):
        raise UsageError(
            f"sampling.stages: '{stage['mix']}' in '{text}' is not a mixture; write the weights of the corpora (1 0), "
            f"'temperature T' or 'all' (--sampling-stages)"
        )
    if first == "temperature":
        require_positive("sampling.stages", temperature=values[0])
        return LaterMix(Mix(temperature=values[0]), update, epoch)
    _require_weights(f"sampling.stages: '{text}'", values)
    return LaterMix(Mix(values), update, epoch)


def _require_weights(what: str, weights: Sequence[float]) -> None:
    wrong = [weight for weight in weights if not 0 <= weight < math.inf]
    if wrong:
        raise UsageError(f"{what}: the weight {wrong[0]:g} must be a finite number that is not negative")
    if weights and not any(weights):
        raise UsageError(f"{what}: all weights are 0; give at least one corpus a positive weight")

"""What translates with a trained model. A kind of engine says which models it can hold, and makes an engine of one.

torch    the model itself
graphs   the model with its steps recorded, on a GPU
native   a Transformer in C, on a CPU, on weights in few bytes
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nmt.errors import UsageError
from nmt.registry import Registry, import_all

if TYPE_CHECKING:
    from nmt.config.choices import NumberFormat
    from nmt.models.stored import LoadedModel
    from nmt.search.decoding import Engine

logger = logging.getLogger("nmt.translation")

AUTO = "auto"
PREFERRED = ("native", "torch")  # what ``auto`` takes: the first one that can hold the model


@dataclass(frozen=True)
class Wanted:
    """What an engine is asked for."""

    device: str  # "cpu", "cuda" or "cuda:1"
    number_format: NumberFormat  # of the weights
    workers: int = 1  # processes that will share the work


class EngineKind(Protocol):
    """Makes engines of models."""

    def misfit(self, model: LoadedModel, wanted: Wanted) -> str | None:
        """Why it cannot hold the model like this, or should not where nobody asked for it; None: it can."""
        ...

    def computes_in(self, wanted: Wanted) -> NumberFormat:
        """What numbers the weights would be kept in."""
        return wanted.number_format

    def make(self, model: LoadedModel, wanted: Wanted) -> Engine: ...


# builder(config) -> EngineKind
engines: Registry[EngineKind] = Registry("engine")

import_all(__name__, __path__, ending="_engine")


def engine_for(name: str, model: LoadedModel, wanted: Wanted) -> Engine:
    """An engine with the model; ``name``: of a kind, or ``auto``. The log says which one it is."""
    name, reasons = _chosen(name, model, wanted)
    kind = _kind(name)
    found = kind.computes_in(wanted)
    refused = "" if found is wanted.number_format else f", not {wanted.number_format.value}"
    why = f" (not the {' or the '.join(reasons)})" if reasons else ""
    level = logging.WARNING if refused else logging.INFO
    logger.log(level, "the %s engine translates, in %s%s%s", name, found.value, refused, why)
    return kind.make(model, wanted)


def _chosen(name: str, model: LoadedModel, wanted: Wanted) -> tuple[str, list[str]]:
    """The kind of engine, and why those that ``auto`` prefers are not it."""
    if name != AUTO:
        reason = _kind(name).misfit(model, wanted)
        if reason is not None:
            raise UsageError(f"--engine {name} cannot take this model: {reason}; use --engine {AUTO}")
        return name, []
    reasons = list[str]()
    for candidate in PREFERRED:
        reason = _kind(candidate).misfit(model, wanted)
        if reason is None:
            return candidate, reasons
        reasons.append(f"{candidate} one, since {reason}")
    raise AssertionError(f"no engine takes every model: {reasons}")


def _kind(name: str) -> EngineKind:
    return engines.build(engines.config_class(name)())

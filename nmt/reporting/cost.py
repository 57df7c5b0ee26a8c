"""What a run costs in floating-point operations, from what was counted and from time (``nmt.training.cost``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from nmt.storage.event_log import Event


@dataclass(frozen=True)
class Cost:
    """What is known of the cost before training begins; None: it is not known."""

    flops_per_token: float | None = None
    device_tflops: float | None = None  # 10^12 operations a second that one device sustains
    devices: int = 1

    def figures(self, tokens: int, parts: Sequence[tuple[Event, float]]) -> dict[str, float]:
        """Operations of ``tokens`` target tokens, counted and estimated, as far as they are known.

        ``parts``: the starts of the run with their seconds; one that nobody recorded was like this one.
        """
        figures = {}
        if self.flops_per_token is not None:
            figures["flops_counted"] = self.flops_per_token * tokens
        estimated = flops_by_time([(start or asdict(self), seconds) for start, seconds in parts])
        if estimated is not None:
            figures["flops_estimated"] = estimated
        return figures


def flops_by_time(parts: Sequence[tuple[Event, float]]) -> float | None:
    """Operations of the starts of a run, each with its own devices. None: the rate of some is not known."""
    operations = 0.0
    for start, seconds in parts:
        if (rate := start.get("device_tflops")) is None:
            return None
        operations += seconds * (start.get("devices") or 1) * rate * 1e12
    return operations

"""Counters of a server, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LINES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Histogram:
    """The number of values up to each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> list[str]:
        lines, total = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self._sum:.6f}", f"{name}_count {total}"]


class Metrics:
    """All counters; other parts of the server change the attributes."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)  # by route and status
        self.seconds = Histogram(SECONDS)
        self.window_lines = Histogram(LINES)
        self.lines: defaultdict[str, int] = defaultdict(int)  # translated, by model
        self.dropped_lines = 0
        self.abandoned_lines = 0
        self.interruptions = 0
        self.ended_workers = 0

    def text(self, **gauges: float) -> str:
        """Return the page. ``gauges``: current values by name."""
        page: list[str] = []

        def section(name: str, kind: str, meaning: str, lines: list[str]) -> None:
            page.extend([f"# HELP nmt_{name} {meaning}", f"# TYPE nmt_{name} {kind}", *lines])

        of_requests = [
            f'nmt_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        section("requests_total", "counter", "Requests answered, by route and status.", of_requests)
        histograms = {
            "request_seconds": ("Seconds from a request to its answer.", self.seconds),
            "window_lines": ("Lines translated together, of all requests.", self.window_lines),
        }
        for name, (meaning, histogram) in histograms.items():
            section(name, "histogram", meaning, histogram.lines(f"nmt_{name}"))
        of_lines = [
            f'nmt_lines_total{{model="{_escaped(name)}"}} {count}' for name, count in sorted(self.lines.items())
        ]
        section("lines_total", "counter", "Lines translated, by model.", of_lines)
        counters = {
            "dropped_lines": "Queued lines dropped because their request had ended.",
            "abandoned_lines": "Lines abandoned by a worker because their request had ended.",
            "interruptions": "Windows that interrupted another one.",
            "ended_workers": "Worker processes that ended and were replaced.",
        }
        for name, meaning in counters.items():
            section(f"{name}_total", "counter", meaning, [f"nmt_{name}_total {getattr(self, name)}"])
        for name, value in gauges.items():
            section(name, "gauge", f"{name.replace('_', ' ').capitalize()} now.", [f"nmt_{name} {value:g}"])
        return "\n".join(page) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""The order of the tests: slow files first, divided evenly among the workers of pytest-xdist.

With ``--dist worksteal`` each worker starts with an equal chunk of the list of tests, and an idle worker takes the end of
another chunk. A slow file at the end of the list would run alone while the other workers have nothing left.

``slow_files.txt`` holds seconds by file, as ``make test PYTEST_ARGS=--durations=0`` measured them. They need not be exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent


def slow_files() -> dict[str, float]:
    """Seconds by file, relative to ``tests``."""
    rows = (line.split() for line in (HERE / "slow_files.txt").read_text(encoding="utf-8").splitlines())
    return {file: float(seconds) for seconds, file in rows}


def balanced(files: Sequence[str], seconds: Mapping[str, float], workers: int) -> list[int]:
    """The indices of tests in the order to run them; ``files``: the file of each test."""
    by_file: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        by_file.setdefault(file, []).append(index)
    chunks: list[list[int]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for file in sorted(by_file.keys() & seconds.keys(), key=lambda file: (-seconds[file], file)):
        least = loads.index(min(loads))
        chunks[least] += by_file.pop(file)
        loads[least] += seconds[file]
    fast = [index for indices in by_file.values() for index in indices]
    left = len(files)
    for number, chunk in enumerate(chunks):  # pytest-xdist divides the list like this
        size = left // (workers - number)
        missing = max(0, size - len(chunk))
        chunk += fast[:missing]
        del fast[:missing]
        left -= size
    return [index for chunk in chunks for index in chunk] + fast

"""nmt-preprocess: parallel text in, a corpus folder out; the report goes to the log."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from nmt.config.sections import PreprocessConfig, ProgressStyle
from nmt.data.preprocess import Progress, preprocess
from nmt.errors import Interrupted
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.preprocess")

_SECONDS_BETWEEN_LINES = 10.0


def run(config: PreprocessConfig) -> None:
    """Make the corpus and log what was found in the text."""
    signal.signal(signal.SIGTERM, _stop)
    with _progress(config.progress) as show:
        report = preprocess(config, show)
    for line in report.lines():
        logger.info(line)
    for warning in report.warnings():
        logger.warning(warning)
    logger.info(f"wrote {report.folder}")


def main() -> None:
    launch("preprocess", PreprocessConfig, run)


def _stop(number: int, frame: object) -> None:
    raise Interrupted("stopped before the corpus was complete; nothing was written, run the same command again")


@contextlib.contextmanager
def _progress(style: ProgressStyle) -> Iterator[Progress]:
    """A bar for each split, a line now and then, or nothing."""
    if style is ProgressStyle.auto:
        style = ProgressStyle.bar if sys.stderr.isatty() else ProgressStyle.lines
    tqdm.monitor_interval = 0  # no thread of its own: workers are forked
    bars: dict[str, Any] = {}
    last_line = time.monotonic()

    def bar(split: str, done: int, total: int) -> None:
        if split not in bars:
            bars[split] = tqdm(desc=split, total=total, unit=" pairs", file=sys.stderr)
        bars[split].update(done - bars[split].n)

    def lines(split: str, done: int, total: int) -> None:
        nonlocal last_line
        if time.monotonic() - last_line >= _SECONDS_BETWEEN_LINES:
            last_line = time.monotonic()
            logger.info(f"{split}: {done:,} of {total:,} pairs")

    def nothing(split: str, done: int, total: int) -> None:
        pass

    try:
        yield {ProgressStyle.bar: bar, ProgressStyle.lines: lines}.get(style, nothing)
    finally:
        for shown in bars.values():
            shown.close()


if __name__ == "__main__":
    main()

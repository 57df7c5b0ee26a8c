"""nmt-preprocess: parallel text in, a corpus folder out; the report goes to the log."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator

from nmt.config.choices import ProgressStyle
from nmt.config.sections import PreprocessConfig
from nmt.data.preprocess import ReportProgress, preprocess
from nmt.errors import Interrupted
from nmt.progress import show_progress
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.preprocess")


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
def _progress(style: ProgressStyle) -> Iterator[ReportProgress]:
    """A display for each split, opened when its first pairs are done."""
    with contextlib.ExitStack() as displays:
        counts: dict[str, Callable[[int], None]] = {}
        shown: dict[str, int] = {}

        def show(split: str, done: int, total: int) -> None:
            if split not in counts:
                counts[split] = displays.enter_context(show_progress(style, split, "pairs", total))
            counts[split](done - shown.get(split, 0))
            shown[split] = done

        yield show


if __name__ == "__main__":
    main()

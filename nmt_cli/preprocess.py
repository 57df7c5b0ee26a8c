"""nmt-preprocess: parallel text in, a corpus folder out; the report goes to the log."""

from __future__ import annotations

import logging
import signal

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.preprocess import preprocess
from nmt.errors import Interrupted
from nmt.progress import show_splits
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.preprocess")


def run(config: PreprocessConfig) -> None:
    """Make the corpus and log what was found in the text."""
    signal.signal(signal.SIGTERM, _stop)
    with show_splits(config.progress) as show:
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


if __name__ == "__main__":
    main()

"""nmt-preprocess: parallel text in, a corpus folder out; the report goes to the log."""

from __future__ import annotations

import logging

from nmt.config.preprocessing import PreprocessConfig
from nmt.preprocessing.preprocess import check_options, finished_shard, preprocess
from nmt.progress import show_splits
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.preprocess")


def check(config: PreprocessConfig) -> None:
    """Check the options that need no text."""
    check_options(config)


def run(config: PreprocessConfig) -> None:
    """Make the corpus and log what was found in the text."""
    finished = finished_shard(config)
    if finished is not None:
        logger.info(f"{finished} already holds this shard, made from the same text with the same options")
        return
    with show_splits(config.progress) as show:
        report = preprocess(config, show)
    report.log(logger)
    logger.info(f"wrote {report.folder}")


def main() -> None:
    launch(PreprocessConfig, run)


if __name__ == "__main__":
    main()

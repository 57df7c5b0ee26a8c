"""nmt-shortlist: what the pieces of a source become, learned from a corpus folder, for nmt-generate --shortlist."""

from __future__ import annotations

import logging
from pathlib import Path

from nmt.config.commands import ShortlistConfig
from nmt.data.corpus.folder import Corpus
from nmt.errors import UsageError
from nmt.progress import going_on
from nmt.storage.lock import claimed
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.shortlist")


def run(config: ShortlistConfig) -> None:
    """Learn from the training split, and write the file."""
    if len(config.data) != 1:
        raise UsageError(f"a shortlist is learned from one corpus folder, not {len(config.data)}: nmt-shortlist FOLDER")
    if not config.output:
        raise UsageError("name the file to write: --output FILE")
    with claimed(Path(config.output), overwrite=config.overwrite):
        _learn(config, Path(config.output))


def _learn(config: ShortlistConfig, output: Path) -> None:
    from nmt.data.corpus.shortlist import learn

    corpus = Corpus.open(Path(config.data[0]))
    split = corpus.split("train")
    if split.targets is None:
        raise UsageError(f"{config.data[0]} has no targets; a shortlist is learned from sentence pairs")
    pairs = min(len(split), config.max_pairs)
    logger.info(f"learning from {pairs:,} of {len(split):,} pairs")
    with going_on("learning the shortlist"):
        shortlist = learn(split, corpus.pair, config.per_piece, config.frequent, config.max_pairs)
    shortlist.save(output)
    logger.info(
        f"wrote {output}: {len(shortlist.pieces) / (len(shortlist.offsets) - 1):.1f} target tokens per source token, "
        f"{len(shortlist.always)} for every sentence"
    )


def main() -> None:
    launch(ShortlistConfig, run)


if __name__ == "__main__":
    main()

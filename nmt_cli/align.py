"""nmt-align: which words of a translation belong to which of its source, by a model's attention, in Pharaoh's format.

Standard output (or ``--output``) carries a line of links for each sentence pair, in input order; all else goes to the log.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path

from nmt.config.aligning import AlignConfig
from nmt.data.text.lines import Reading
from nmt.data.text.links import pharaoh
from nmt.data.text.parallel import TwoFiles, require_file
from nmt.errors import UsageError
from nmt.hub import require_models
from nmt.progress import show_progress
from nmt_cli.launch import launch
from nmt_cli.outputs import check_file, claim, opened

logger = logging.getLogger("nmt.align")

_AT_ONCE = 256  # lines that are written together


def run(config: AlignConfig) -> None:
    """Choose the layers and heads, align, and write."""
    text = _check(config)
    with claim(config):
        _align(config, text)


def _align(config: AlignConfig, text: TwoFiles) -> None:
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    total = text.count(reading)
    valid = None
    if config.valid_src is not None and config.valid_ref is not None:
        valid = TwoFiles(require_file(Path(config.valid_src)), require_file(Path(config.valid_ref)))
    gold = _gold(config, total if valid is None else valid.count(reading))
    from nmt.translation.word_alignment import Directions, selection_pairs

    directions = Directions.load(config)
    validation = None
    if gold is not None or config.reverse is not None:
        source = text if valid is None else valid
        pairs = list(itertools.islice(source.pairs(reading), config.valid_count))
        called = None if valid is None else str(config.valid_src)
        validation = selection_pairs(pairs, gold, str(config.gold), called)
    with show_progress(config.progress, "compared", "pairs") as compared:
        places = directions.choose(config, validation, compared)
    with (
        show_progress(config.progress, "aligned", "pairs", total) as aligned,
        opened(config.output) as write,
    ):
        lines = (pharaoh(links) for links in directions.links(text.pairs(reading), places, config.rule))
        while some := list(itertools.islice(lines, _AT_ONCE)):
            write(iter(some))
            aligned(len(some))


def main() -> None:
    launch(AlignConfig, run)


def _check(config: AlignConfig) -> TwoFiles:
    """Check the options before a model is loaded; return the text to align."""
    if not config.path:
        raise UsageError("name the model whose attention aligns: --path MODEL")
    if config.src is None or config.ref is None:
        raise UsageError("name the text to align, two files with the same number of lines: --src FILE --ref FILE")
    require_models(config.path, config.reverse)
    if config.output is not None:
        check_file(Path(config.output), config, ("src", "ref", "valid_src", "valid_ref", "gold"))
    return TwoFiles(require_file(Path(config.src)), require_file(Path(config.ref)))


def _gold(config: AlignConfig, pairs: int) -> Sequence[str] | None:
    """Return the alignments of the first validation pairs. ``pairs``: the number of all pairs."""
    if config.gold is None:
        return None
    from nmt.translation.word_alignment import require_line_each

    lines = [line or "" for line in Reading(max_line_bytes=config.max_line_bytes).lines(Path(config.gold))]
    require_line_each(len(lines), pairs, config.gold, config.valid_ref or str(config.ref))
    return lines[: config.valid_count]


if __name__ == "__main__":
    main()

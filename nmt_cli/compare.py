"""nmt-compare: where the translations of several systems differ, as a page or as data."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from nmt.comparing import Comparison, compared, scorers_of
from nmt.config.choices import PieceMarks, ProgressStyle
from nmt.config.comparing import CompareConfig
from nmt.data.text.lines import Reading
from nmt.data.text.piece_marks import joined_lines
from nmt.errors import DataError, OutputError, UsageError
from nmt.pages.names import short_names
from nmt.progress import going_on, show_progress
from nmt.scoring.systems import check_readable
from nmt.storage.files import atomic_write
from nmt.storage.lock import claimed
from nmt_cli.launch import launch
from nmt_cli.scored_text import STDIN, Texts, read_texts, warn

logger = logging.getLogger("nmt.compare")

_PAGE, _DATA = ".html", ".json"
_HEAVY = 5_000_000  # bytes of a page that no longer opens at once


def run(config: CompareConfig) -> None:
    """Write the page or the data, and print the name of the file."""
    output = _output(config)
    with claimed(output, overwrite=config.overwrite):
        _write(_compared(config), output)
    print(output)


def _compared(config: CompareConfig) -> Comparison:
    scorers = scorers_of(config)
    texts = read_texts(config)
    check_readable(scorers, texts.systems, dict(zip(config.ref, texts.references)), texts.numbers)
    warn(config, texts.systems, texts.references)
    systems = dict(zip(config.names or _names(texts), texts.systems.values()))
    with contextlib.ExitStack() as shown:
        train = None if config.train is None else _training_text(config, shown)
        shown.enter_context(going_on("comparing"))
        return compared(config, scorers, systems, texts.references, texts.sources, train, texts.numbers)


def main() -> None:
    launch(CompareConfig, run)


def _output(config: CompareConfig) -> Path:
    """Check the options before anything is read; return the output."""
    if len(config.sys) < 2:
        raise UsageError("name the systems to compare, two files or more: nmt-compare A B --ref FILE --output FILE")
    if not config.output:
        raise UsageError("name the file to write: --output compare.html, or one that ends in .json")
    output = Path(config.output)
    if output.suffix not in (_PAGE, _DATA):
        raise UsageError(f"--output {output}: the name must end in {_PAGE} or {_DATA}")
    read = [name for name in (*config.sys, *config.ref, config.src, config.train) if name is not None]
    for name in read:
        if output.exists() and Path(name).exists() and output.samefile(name):
            raise OutputError(f"writing {output} would replace the input {name}; choose another --output")
    return output


def _names(texts: Texts) -> list[str]:
    """Return short names of the systems; standard input keeps its name."""
    files = [Path(name) for name in texts.systems if name != STDIN]
    short = iter(short_names(files))
    return [name if name == STDIN else next(short) for name in texts.systems]


def _training_text(config: CompareConfig, shown: contextlib.ExitStack) -> Iterator[str]:
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    marks = config.remove_bpe or PieceMarks.none
    count = shown.enter_context(show_progress(ProgressStyle.auto, "counting words of", "lines"))
    lines = 0
    for block in reading.blocks(Path(str(config.train))):
        lines += len(block)
        yield from joined_lines([line for line in block if line is not None], marks)
        count(len(block))
    if not lines:
        raise DataError(f"{config.train} is empty: there is no training text to count words in")


def _write(comparison: Comparison, output: Path) -> None:
    if output.suffix == _PAGE:
        text = comparison.page()
    else:
        text = json.dumps(comparison.plain(), ensure_ascii=False, indent=2) + "\n"
    content = text.encode("utf-8", "replace")
    if output.suffix == _PAGE and len(content) > _HEAVY:
        size = f"{len(content) / 1e6:.0f} MB"
        logger.warning(f"the page has {size}, which takes a while to open; lower --count, or compare fewer systems")
    with atomic_write(output) as file:
        file.write(content)


if __name__ == "__main__":
    main()

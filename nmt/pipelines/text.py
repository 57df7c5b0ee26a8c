"""Process lines of text between the commands of a pipeline. Names of files are relative to the ``folder`` of the stage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from nmt.data.augmentations import Augment
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import TwoFiles
from nmt.errors import DataError
from nmt.storage.files import atomic_write

STRICT = Reading()  # invalid lines are errors


def lines_of(*paths: Path, reading: Reading = STRICT) -> Iterator[str]:
    """Yield the lines of several files; a skipped line is empty."""
    return (line or "" for path in paths for line in reading.lines(path, quiet=True))


def require_text(path: Path, reading: Reading) -> None:
    """Refuse a file with invalid lines, or without text."""
    if not sum(bool((line or "").strip()) for line in reading.lines(path)):
        raise DataError(f"{path} has no text; each line should be a sentence")


def write_rows(rows: Iterable[Sequence[str]], *paths: Path) -> None:
    """Write each row as a line of each file. All files are complete, or none is written."""
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(atomic_write(path)) for path in paths]
        for row in rows:
            for output, line in zip(outputs, row):
                output.write(f"{line}\n".encode())


def join_lines(names: Sequence[str], outputs: Sequence[str], folder: Path, reading: Reading = STRICT) -> None:
    """Write the lines of several files, without empty ones, to each output."""
    lines = filter(str.strip, lines_of(*(folder / name for name in names), reading=reading))
    write_rows(([line] * len(outputs) for line in lines), *(folder / output for output in outputs))


def keep_lines(names: Sequence[str], output: str, folder: Path, reading: Reading = STRICT) -> None:
    """Write the lines that nmt-preprocess did not drop, by its file ``dropped.tsv`` of --keep-dropped."""
    dropped = folder / "dropped.tsv"
    rows = [line.split("\t") for line in lines_of(dropped)]
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or not row[1].isdecimal():
            raise DataError(f"{dropped}:{number} has no line number in its second column")
    numbers = {int(row[1]) for row in rows}
    lines = enumerate(lines_of(*(folder / name for name in names), reading=reading), 1)
    write_rows(([line] for number, line in lines if number not in numbers), folder / output)


def make_pairs(
    names: Sequence[str], outputs: Sequence[str], tag: str | None, noise: Sequence[Augment], folder: Path
) -> None:
    """Write the pairs of a source and a target file, without those that lack a side: noise on each source (Edunov et al.
    2018), and a tag before it (Caswell et al. 2019). The noise of a pair depends on its line number only."""
    text = TwoFiles(*(folder / name for name in names))
    text.count(Reading())  # refuses files of unequal length

    def pairs() -> Iterator[tuple[str, str]]:
        for number, (source, target) in enumerate(text.pairs(Reading())):
            if source and target and source.strip() and target.strip():
                random = Random(number)
                for augment in noise:
                    source = augment.change(source, target, random)[0] if random.random() < augment.share else source
                yield (f"{tag} {source}" if tag else source), target

    write_rows(pairs(), *(folder / output for output in outputs))

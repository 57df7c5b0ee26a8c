"""A task of the textbook (dates, sums), from its one file to train and valid as ``.src`` and ``.tgt`` files.

    python examples/date/convert.py date.txt.gz demo-textbook/text

A line of the file is a written date padded with spaces to 29 characters, an underscore, and the date as YYYY-MM-DD:

    september 27, 1994           _1994-09-27

The split is the textbook's, line for line: the numbers 0 ... n-1 are shuffled by NumPy's legacy generator
(``numpy.random.RandomState``) at seed 1984; the lines are taken in that order; the last tenth (n // 10 lines) is for
validation. The spaces of the padding are dropped: batches are padded by the toolkit itself. The same date may stand in
both parts, in another spelling or in the same one; the project's own generator (generate.py) is stricter.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, quantity
from nmt.storage.files import atomic_write, explained_os_errors

SEED = 1984
FEWEST = 10  # lines, a tenth of which is one


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Source and target of each line; the file may be compressed."""
    pairs = []
    for number, line in enumerate(Reading().lines(path), start=1):
        source, underscore, target = (line or "").partition("_")
        if not underscore:
            raise DataError(f"{path}:{number}: no underscore between source and target: {line!r}")
        pairs.append((source.rstrip(), target.rstrip()))
    if len(pairs) < FEWEST:
        raise DataError(
            f"{path} has {quantity(len(pairs), 'line')}; a tenth is for validation, so give {FEWEST} at least"
        )
    return pairs


def split(pairs: list[tuple[str, str]], seed: int = SEED) -> dict[str, list[tuple[str, str]]]:
    """The textbook's order and its last tenth for validation."""
    order = np.arange(len(pairs))
    np.random.RandomState(seed).shuffle(order)
    shuffled = [pairs[number] for number in order]
    training = len(shuffled) - len(shuffled) // 10
    return {"train": shuffled[:training], "valid": shuffled[training:]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Split a task of the textbook into train and valid, .src and .tgt.")
    parser.add_argument("file", type=Path, help="date.txt or addition.txt, compressed or not")
    parser.add_argument("folder", type=Path, help="where the files are written")
    arguments = parser.parse_args()
    try:
        sets = split(read_pairs(arguments.file))
        with explained_os_errors(arguments.folder):
            arguments.folder.mkdir(parents=True, exist_ok=True)
        for name, pairs in sets.items():
            for suffix, side in (("src", 0), ("tgt", 1)):
                with atomic_write(arguments.folder / f"{name}.{suffix}") as file:
                    file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

"""Split a task of the textbook (dates or sums) from one file into train and valid, as ``.src`` and ``.tgt`` files.

    python examples/date/convert.py date.txt.gz demo-textbook/text

A line of the file has a written date, padded with spaces to 29 characters, an underscore, and the date as YYYY-MM-DD:

    september 27, 1994           _1994-09-27

The split is that of the textbook, line for line. NumPy's legacy generator (``numpy.random.RandomState``) with seed
1984 shuffles the numbers 0 ... n-1, which give the order of the lines. The last tenth (n // 10 lines) is for
validation. The padding is dropped, because the toolkit pads batches itself. The same date can be in both splits, in
the same or in another spelling. generate.py is stricter: it holds dates out in all spellings.
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
FEWEST = 10  # lines: a tenth of them is one line


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Return source and target of each line. The file may be compressed."""
    pairs = []
    for number, line in enumerate(Reading().lines(path), start=1):
        source, underscore, target = (line or "").partition("_")
        if not underscore:
            raise DataError(f"{path}:{number}: no underscore between source and target: {line!r}")
        pairs.append((source.rstrip(), target.rstrip()))
    if len(pairs) < FEWEST:
        raise DataError(
            f"{path} has {quantity(len(pairs), 'line')}; give at least {FEWEST}, because a tenth is for validation"
        )
    return pairs


def split(pairs: list[tuple[str, str]], seed: int = SEED) -> dict[str, list[tuple[str, str]]]:
    """Return the splits in the textbook's order. The last tenth is for validation."""
    order = np.arange(len(pairs))
    np.random.RandomState(seed).shuffle(order)
    shuffled = [pairs[number] for number in order]
    training = len(shuffled) - len(shuffled) // 10
    return {"train": shuffled[:training], "valid": shuffled[training:]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Split a task of the textbook into train and valid, .src and .tgt.")
    parser.add_argument("file", type=Path, help="date.txt or addition.txt, compressed or not")
    parser.add_argument("folder", type=Path, help="folder for the output files")
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

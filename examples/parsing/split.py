"""Split NLTK's sample of the Penn Treebank into train, dev and test.

    python examples/parsing/split.py ~/nltk_data/corpora/treebank/combined data/treebank

The sample has 199 files of bracketed trees, wsj_0001.mrg to wsj_0199.mrg. The last twenty files are for test, the
twenty before them for dev, and all others for training. Each split becomes one file, such as train.mrg.gz, with the
trees in order.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from trees import read_trees

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, quantity
from nmt.storage.files import atomic_write, explained_os_errors

# First file of each split, and its number of trees for the figures of README.md.
FIRST = {"train": 1, "dev": 160, "test": 180}
TREES = {"train": 3396, "dev": 273, "test": 245}


def part_of(number: int) -> str:
    return [part for part, first in FIRST.items() if number >= first][-1]


def divided(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split, in order."""
    parts: dict[str, list[Path]] = {part: [] for part in FIRST}
    for path in sorted(folder.glob("wsj_*.mrg")):
        if number := re.fullmatch(r"wsj_0*([1-9]\d*)", path.stem):
            parts[part_of(int(number[1]))].append(path)
    if empty := [part for part, files in parts.items() if not files]:
        raise DataError(f"{folder} has no file for {', '.join(empty)}; it should hold wsj_0001.mrg to wsj_0199.mrg")
    return parts


def write(files: Sequence[Path], output: Path) -> None:
    """Write the concatenation of the files, unchanged."""
    text = "".join(f"{line}\n" for path in files for line in Reading().lines(path))
    with atomic_write(output) as file:
        file.write(gzip.compress(text.encode(), mtime=0))  # mtime=0: the same bytes each time


def main() -> None:
    parser = argparse.ArgumentParser(description="Split NLTK's sample of the Penn Treebank into train, dev and test.")
    parser.add_argument("combined", type=Path, help="folder with wsj_0001.mrg to wsj_0199.mrg")
    parser.add_argument("output", type=Path, help="folder for train.mrg.gz, dev.mrg.gz and test.mrg.gz")
    arguments = parser.parse_args()
    try:
        parts = divided(arguments.combined)
        with explained_os_errors(arguments.output):
            arguments.output.mkdir(parents=True, exist_ok=True)
        for part, files in parts.items():
            write(files, arguments.output / f"{part}.mrg.gz")
            count = len(list(read_trees(arguments.output / f"{part}.mrg.gz")))
            print(f"{part}: {quantity(count, 'tree')} of {quantity(len(files), 'file')}")
            if count != TREES[part]:
                print(
                    f"{parser.prog}: the figures of README.md are of {TREES[part]:,} trees for {part}; yours may differ",
                    file=sys.stderr,
                )
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

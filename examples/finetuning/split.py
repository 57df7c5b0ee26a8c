"""Split parallel text into a domain and the rest, by words of the source sentences.

    python examples/finetuning/split.py "$NMT_DATA/multi30k" runs/finetuning/text

Reads train, val, test_2016_flickr and test_2017_flickr of Multi30k (``.en.gz`` and ``.de.gz``). Writes ``water.*``,
the captions with a word for water, and ``land.*``, all others, each as ``train``, ``valid`` and ``test``. ``test``
joins the two test sets.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, quantity
from nmt.storage.files import atomic_write, explained_os_errors

WATER = re.compile(
    r"\b(water|ocean|sea|beach|pool|lake|river|swim|swims|swimming|swimmer|swimmers|surf|surfs|surfing|surfer|surfers"
    r"|wave|waves|boat|boats|canoe|kayak)\b",
    re.IGNORECASE,
)
SPLITS = {"train": ["train"], "valid": ["val"], "test": ["test_2016_flickr", "test_2017_flickr"]}
LANGUAGES = ("en", "de")

Pair = tuple[str, str]


def read(folder: Path, names: Sequence[str]) -> list[Pair]:
    """Return the sentence pairs of these files, in order."""
    pairs: list[Pair] = []
    for name in names:
        sides = [[line or "" for line in Reading().lines(folder / f"{name}.{language}.gz")] for language in LANGUAGES]
        if len(sides[0]) != len(sides[1]):
            raise DataError(f"{folder / name} has {quantity(len(sides[0]), 'line')} of en but {len(sides[1])} of de")
        pairs += zip(*sides)
    return pairs


def divided(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs with a word for water in the source, and the others."""
    return [pair for pair in pairs if WATER.search(pair[0])], [pair for pair in pairs if not WATER.search(pair[0])]


def main() -> None:
    parser = argparse.ArgumentParser(description="Split Multi30k into captions with water and others.")
    parser.add_argument("multi30k", type=Path, help="folder with train.en.gz, train.de.gz and so on")
    parser.add_argument("output", type=Path, help="folder for water.train.en, land.train.en and so on")
    arguments = parser.parse_args()
    try:
        with explained_os_errors(arguments.output):
            arguments.output.mkdir(parents=True, exist_ok=True)
        for split, names in SPLITS.items():
            for domain, pairs in zip(("water", "land"), divided(read(arguments.multi30k, names))):
                print(f"{domain} {split}: {quantity(len(pairs), 'pair')}")
                for side, language in enumerate(LANGUAGES):
                    with atomic_write(arguments.output / f"{domain}.{split}.{language}") as file:
                        file.write("".join(f"{pair[side]}\n" for pair in pairs).encode())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

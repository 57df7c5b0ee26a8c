"""Trees of the Penn Treebank as parallel text: words, and linearised trees.

    python examples/parsing/prepare.py train.mrg.gz runs/parsing/text/train

writes, a line for each tree,

    train.src     words
    train.tgt     the tree's symbols, such as (S (NP XX XX )NP (VP XX )VP XX )S
    train.align   which word each symbol stands at (i-j: word i, symbol j), for nmt-train --criterion guided_alignment
    train.trees   the tree in brackets, as nmt-score --metrics brackets reads it

With --guide leaves a word is aligned to its own symbol alone. With next, every symbol stands at the first word that no
symbol before it has read, which for a tag is its own; those after the last word stand at none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from linear import linearise
from trees import Tree, is_tag, read_trees

from nmt.errors import DataError, NMTError
from nmt.storage.files import atomic_write, explained_os_errors


def alignment(tree: Tree, guide: str) -> str:
    """Pairs i-j of a word and a symbol, counted from 0."""
    pairs, word = [], 0
    for place, symbol in enumerate(tree.symbols):
        if is_tag(symbol) or (guide == "next" and word < len(tree.words)):
            pairs.append(f"{word}-{place}")
        word += is_tag(symbol)
    return " ".join(pairs)


def written(trees: Sequence[Tree], arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The lines of each file, by the ending of its name."""
    closers, tags = arguments.closers == "labelled", arguments.tags == "keep"
    return {
        "src": [" ".join(tree.words) for tree in trees],
        "tgt": [linearise(tree, closers=closers, tags=tags) for tree in trees],
        "align": [alignment(tree, arguments.guide) for tree in trees],
        "trees": [str(tree) for tree in trees],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Make parallel text of trees: words and linearised trees.")
    parser.add_argument("trees", type=Path, help="bracketed trees, compressed with gzip or not")
    parser.add_argument("output", help="beginning of the files' names, such as text/train")
    parser.add_argument(
        "--closers", choices=("labelled", "plain"), default="labelled", help=")NP or ) (default: %(default)s)"
    )
    parser.add_argument(
        "--tags", choices=("xx", "keep"), default="xx", help="XX or the tag of each word (default: %(default)s)"
    )
    parser.add_argument(
        "--guide", choices=("leaves", "next"), default="leaves", help="symbols with an alignment (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        trees = list(read_trees(arguments.trees))
        if not trees:
            raise DataError(f"{arguments.trees}: there is no tree")
        folder = Path(arguments.output).parent
        with explained_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for suffix, lines in written(trees, arguments).items():
            with atomic_write(Path(f"{arguments.output}.{suffix}")) as file:
                file.write("".join(f"{line}\n" for line in lines).encode())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

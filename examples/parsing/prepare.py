"""Convert trees of the Penn Treebank to parallel text: words, and linearized trees.

    python examples/parsing/prepare.py train.mrg.gz runs/parsing/text/train

Writes four files with one line per tree:

    train.src     words
    train.tgt     symbols of the tree, such as (S (NP XX XX )NP (VP XX )VP XX )S
    train.align   the word of each symbol (i-j: word i, symbol j), for nmt-train --criterion guided_alignment
    train.trees   the tree in brackets, for nmt-score --metrics brackets

With --guide leaves, a word is aligned only to its tag. With --guide next, every symbol is aligned to the first word
whose tag is not before the symbol; for a tag, this is its own word. Symbols after the last tag have no alignment.
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
    """Return pairs i-j of a word and a symbol, counted from 0."""
    pairs, word = [], 0
    for place, symbol in enumerate(tree.symbols):
        if is_tag(symbol) or (guide == "next" and word < len(tree.words)):
            pairs.append(f"{word}-{place}")
        word += is_tag(symbol)
    return " ".join(pairs)


def written(trees: Sequence[Tree], arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Return the lines of each file, by file name suffix."""
    closers, tags = arguments.closers == "labelled", arguments.tags == "keep"
    return {
        "src": [" ".join(tree.words) for tree in trees],
        "tgt": [linearise(tree, closers=closers, tags=tags) for tree in trees],
        "align": [alignment(tree, arguments.guide) for tree in trees],
        "trees": [str(tree) for tree in trees],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert trees to parallel text: words and linearized trees.")
    parser.add_argument("trees", type=Path, help="file of bracketed trees, plain or gzip-compressed")
    parser.add_argument("output", help="prefix of the output files, such as text/train")
    parser.add_argument(
        "--closers",
        choices=("labelled", "plain"),
        default="labelled",
        help="form of closers: )NP or ) (default: %(default)s)",
    )
    parser.add_argument(
        "--tags", choices=("xx", "keep"), default="xx", help="symbols of words: XX or their tags (default: %(default)s)"
    )
    parser.add_argument(
        "--guide", choices=("leaves", "next"), default="leaves", help="symbols with an alignment (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        trees = list(read_trees(arguments.trees))
        if not trees:
            raise DataError(f"{arguments.trees} has no tree")
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

"""Generate the look-up task: each symbol leads to a symbol; a question follows the links from one of them.

    python examples/memory_network/generate.py look-up/text --links 3 --seed 1

Writes train, valid and test as ``.src`` and ``.tgt`` files, one question per line:

    source   d h b f g c a e c>>>      a leads to d, b to h, and so on; then the question: three links from c
    target   c>>> e                    the question, and its answer: c leads to b, b to h, h to e

The links are random. Questions of train follow one to ``--links`` links. Questions of valid and test follow
``--links`` links over different symbols, so that only a model that follows all links finds the answer. The lists of
links of valid and test occur in no other split.
"""

from __future__ import annotations

import argparse
import random
import string
import sys
from pathlib import Path

from nmt.errors import NMTError
from nmt.storage.files import atomic_write, explained_os_errors

MOST_SYMBOLS = len(string.ascii_lowercase)

Links = tuple[str, ...]  # the symbol that a leads to, that b leads to, ...
Pair = tuple[str, str]  # a source line and its target line


def path(links: Links, start: str, length: int) -> list[str]:
    """Return a symbol and the ``length`` symbols that its links lead to, in order."""
    visited = [start]
    for _ in range(length):
        visited.append(links[string.ascii_lowercase.index(visited[-1])])
    return visited


def pair(links: Links, visited: list[str]) -> Pair:
    """Return the source and target line that ask for the end of a path."""
    question = visited[0] + ">" * (len(visited) - 1)
    return " ".join([*links, question]), f"{question} {visited[-1]}"


def generate(size: int, held_out: int, symbols: int, longest: int, seed: int) -> dict[str, list[Pair]]:
    """Return the three splits: ``size`` training pairs, and ``held_out`` pairs each for valid and test."""
    generator = random.Random(seed)
    letters = string.ascii_lowercase[:symbols]
    unseen: dict[Links, Pair] = {}
    while len(unseen) < 2 * held_out:
        links = tuple(generator.choices(letters, k=symbols))
        visited = path(links, generator.choice(letters), longest)
        if len(set(visited)) == longest + 1:
            unseen[links] = pair(links, visited)
    train: list[Pair] = []
    while len(train) < size:
        links = tuple(generator.choices(letters, k=symbols))
        if links not in unseen:
            train.append(pair(links, path(links, generator.choice(letters), generator.randint(1, longest))))
    pairs = list(unseen.values())
    return {"train": train, "valid": pairs[:held_out], "test": pairs[held_out:]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the look-up task: train, valid and test, .src and .tgt.")
    parser.add_argument("folder", type=Path, help="folder for the output files")
    parser.add_argument("--size", type=int, default=100000, help="number of training pairs (default: %(default)s)")
    parser.add_argument(
        "--held-out", type=int, default=1000, help="pairs in valid and in test, each (default: %(default)s)"
    )
    parser.add_argument(
        "--symbols", type=int, default=8, help="number of symbols and links in a line (default: %(default)s)"
    )
    parser.add_argument("--links", type=int, default=3, help="maximum links of a question (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)s)")
    arguments = parser.parse_args()
    if not 1 <= arguments.links < arguments.symbols <= MOST_SYMBOLS:
        parser.error(f"--symbols must be at most {MOST_SYMBOLS}, and --links from 1 to one less than --symbols")
    lists = arguments.symbols**arguments.symbols
    if arguments.size < 1 or not 1 <= arguments.held_out <= lists // 100:
        parser.error(
            f"--size must be at least 1, --held-out from 1 to {lists // 100} (a hundredth of all lists of links)"
        )
    try:
        with explained_os_errors(arguments.folder):
            arguments.folder.mkdir(parents=True, exist_ok=True)
        sets = generate(arguments.size, arguments.held_out, arguments.symbols, arguments.links, arguments.seed)
        for name, pairs in sets.items():
            for suffix, side in (("src", 0), ("tgt", 1)):
                with atomic_write(arguments.folder / f"{name}.{suffix}") as file:
                    file.write("".join(f"{lines[side]}\n" for lines in pairs).encode())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

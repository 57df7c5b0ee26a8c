"""The look-up task: follow links from a symbol, so many times.

    python examples/memory_network/generate.py look-up/text --links 3 --seed 1

writes train, valid and test as ``.src`` and ``.tgt`` files, one question a line:

    source   d>g b>a h>d a>f g>e f>c c>h e>b a      the links in any order, then the symbol asked about
    target   a h                                    that symbol, and the one three links on: a>f f>c c>h

A link is one piece of a vocabulary of pairs. The links of a line form one cycle through all symbols: each symbol has one
link that leads to it and one that leads on, so nothing but following them tells the answer. The cycles of valid and of
test occur in no other set.
"""

from __future__ import annotations

import argparse
import math
import random
import string
from collections.abc import Sequence
from pathlib import Path

Cycle = tuple[str, ...]
MOST_SYMBOLS = 9  # all (n - 1)! cycles are listed


def follow(cycle: Cycle, start: str, links: int) -> str:
    """The symbol so many links after another."""
    return cycle[(cycle.index(start) + links) % len(cycle)]


def all_cycles(symbols: Sequence[str], generator: random.Random) -> list[Cycle]:
    """Every cycle through all symbols once, in random order; each is written from the first symbol on."""
    cycles: list[Cycle] = [(symbols[0],)]
    for symbol in symbols[1:]:  # a new symbol goes after any of those before it
        cycles = [(*cycle[:at], symbol, *cycle[at:]) for cycle in cycles for at in range(1, len(cycle) + 1)]
    generator.shuffle(cycles)
    return cycles


def question(cycle: Cycle, links: int, generator: random.Random) -> tuple[str, str]:
    """A source line and its target line."""
    pieces = [f"{symbol}>{follow(cycle, symbol, 1)}" for symbol in cycle]
    generator.shuffle(pieces)
    start = generator.choice(cycle)
    return " ".join([*pieces, start]), f"{start} {follow(cycle, start, links)}"


def generate(size: int, held_out: int, symbols: int, links: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """The three sets: ``size`` training pairs, and ``held_out`` pairs for valid and for test, a cycle each."""
    generator = random.Random(seed)
    cycles = all_cycles(string.ascii_lowercase[:symbols], generator)
    parts = {"valid": cycles[:held_out], "test": cycles[held_out : 2 * held_out]}
    train = generator.choices(cycles[2 * held_out :], k=size)
    return {
        name: [question(cycle, links, generator) for cycle in part] for name, part in {"train": train, **parts}.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the look-up task: train, valid and test, .src and .tgt.")
    parser.add_argument("folder", type=Path, help="where the files are written")
    parser.add_argument("--size", type=int, default=20000, help="training pairs (default: %(default)s)")
    parser.add_argument("--held-out", type=int, default=1000, help="pairs in valid and in test (default: %(default)s)")
    parser.add_argument("--symbols", type=int, default=8, help="symbols, and links of a line (default: %(default)s)")
    parser.add_argument("--links", type=int, default=3, help="how many links are followed (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of everything random (default: %(default)s)")
    arguments = parser.parse_args()
    if not 1 <= arguments.links < arguments.symbols <= MOST_SYMBOLS:
        parser.error(f"--symbols must be at most {MOST_SYMBOLS}, and --links from 1 to one less than --symbols")
    cycles = math.factorial(arguments.symbols - 1)
    if arguments.size < 1 or not 1 <= arguments.held_out <= cycles // 4:
        parser.error(f"--size must be at least 1, --held-out from 1 to {cycles // 4} (a quarter of all cycles)")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    sets = generate(arguments.size, arguments.held_out, arguments.symbols, arguments.links, arguments.seed)
    for name, pairs in sets.items():
        for suffix, side in (("src", 0), ("tgt", 1)):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (arguments.folder / f"{name}.{suffix}").write_text(lines, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()

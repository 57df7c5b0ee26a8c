"""Generate the first three tasks of Graves, Wayne and Danihelka 2014, arXiv:1410.5401, as parallel text.

    python examples/neural_turing_machine/generate.py copy/text --task copy --test-lengths 10,20,40 --seed 1

Writes train, valid and a test set for each length (test.10, ...) as ``.src`` and ``.tgt`` files, one sequence per
line. Also writes the two vocabularies, source.pieces and target.pieces, for ``--srcdict`` and ``--tgtdict``. A vector
is written as its bits. The vocabularies list all vectors in numeric order, so that a model with ``symbols: binary``
gets the bits of a vector from its id. Markers follow the vectors.

    task      source                                        target                    in the paper
    copy      11001010 00101101                             11001010 00101101         section 4.1
    repeat    11001010 00101101 again again                 the vectors, twice        section 4.2
    recall    item 110010 001011 110100 item ... ask        the item that comes       section 4.3
              110010 001011 110100 ask                      after the one asked about

The length of a test set is the number of vectors (copy), of copies of ``--longest`` vectors (repeat), or of items
(recall). In the paper, one input gives the number of copies. Here it is the number of markers, so that more copies
need no new input.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path

from nmt.errors import NMTError
from nmt.storage.files import atomic_write, explained_os_errors

AGAIN, ITEM, ASK = "again", "item", "ask"
ITEM_VECTORS = 3

Pair = tuple[list[str], list[str]]  # source and target tokens


def vectors(number: int, bits: int, generator: random.Random) -> list[str]:
    """Return ``number`` random vectors of ``bits`` bits, with replacement."""
    return [format(generator.getrandbits(bits), f"0{bits}b") for _ in range(number)]


def copy(length: int, bits: int, generator: random.Random) -> Pair:
    """Return a sequence of ``length`` vectors as source and target."""
    sequence = vectors(length, bits, generator)
    return sequence, sequence


def repeat(length: int, copies: int, bits: int, generator: random.Random) -> Pair:
    """Return a sequence with ``copies`` markers, and ``copies`` copies of the sequence."""
    sequence = vectors(length, bits, generator)
    return [*sequence, *[AGAIN] * copies], sequence * copies


def recall(items: int, bits: int, generator: random.Random) -> Pair:
    """Return a list of different items with a question about one of them, and the item that follows it."""
    different: dict[str, list[str]] = {}
    while len(different) < items:
        item = vectors(ITEM_VECTORS, bits, generator)
        different[" ".join(item)] = item
    chain = list(different.values())
    asked = generator.randrange(items - 1)
    listed = [piece for item in chain for piece in (ITEM, *item)]
    return [*listed, ASK, *chain[asked], ASK], chain[asked + 1]


def drawing(task: str, shortest: int, longest: int, bits: int) -> tuple[Callable[[random.Random], Pair], list[str]]:
    """Return a function that draws a training pair, and the markers of the task."""
    if task == "copy":
        return lambda generator: copy(generator.randint(shortest, longest), bits, generator), []
    if task == "repeat":
        return lambda generator: repeat(
            generator.randint(shortest, longest), generator.randint(shortest, longest), bits, generator
        ), [AGAIN]
    return lambda generator: recall(generator.randint(shortest, longest), bits, generator), [ITEM, ASK]


def drawing_at(task: str, length: int, longest: int, bits: int) -> Callable[[random.Random], Pair]:
    """Return a function that draws a test pair of one length."""
    if task == "repeat":
        return lambda generator: repeat(longest, length, bits, generator)
    return drawing(task, length, length, bits)[0]


def write(folder: Path, name: str, pairs: list[Pair]) -> None:
    for suffix, side in (("src", 0), ("tgt", 1)):
        with atomic_write(folder / f"{name}.{suffix}") as file:
            file.write("".join(" ".join(pair[side]) + "\n" for pair in pairs).encode())


def write_vocabularies(folder: Path, bits: int, markers: list[str]) -> None:
    """Write every vector in numeric order, then the markers, which occur in sources only."""
    symbols = [format(number, f"0{bits}b") for number in range(2**bits)]
    for name, pieces in (("source", [*symbols, *markers]), ("target", symbols)):
        with atomic_write(folder / f"{name}.pieces") as file:
            file.write("".join(f"{piece}\n" for piece in pieces).encode())


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a task of the Neural Turing Machine as parallel text.")
    parser.add_argument("folder", type=Path, help="folder for the output files")
    parser.add_argument(
        "--task", choices=["copy", "repeat", "recall"], default="copy", help="task (default: %(default)s)"
    )
    parser.add_argument("--bits", type=int, default=8, help="bits per vector (default: %(default)s)")
    parser.add_argument("--shortest", type=int, help="smallest length in training (default: 1; recall: 2)")
    parser.add_argument("--longest", type=int, default=20, help="largest length in training (default: %(default)s)")
    parser.add_argument("--size", type=int, default=100000, help="number of training pairs (default: %(default)s)")
    parser.add_argument(
        "--held-out", type=int, default=500, help="pairs in valid and in each test set (default: %(default)s)"
    )
    parser.add_argument(
        "--test-lengths",
        type=numbers,
        default=[],
        metavar="LENGTHS",
        help="lengths of the test sets, separated by commas",
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)s)")
    arguments = parser.parse_args()
    lengths = arguments.test_lengths
    least = 2 if arguments.task == "recall" else 1
    shortest = least if arguments.shortest is None else arguments.shortest
    if not least <= shortest <= arguments.longest:
        parser.error(f"--shortest must be at least {least} for this task, and --longest at least --shortest")
    if any(length < least for length in lengths):
        parser.error(f"--test-lengths must be at least {least} for this task")
    if not 1 <= arguments.bits <= 16 or arguments.size < 1 or arguments.held_out < 1:
        parser.error("--bits must be from 1 to 16, --size and --held-out at least 1")
    if arguments.task == "recall" and max([arguments.longest, *lengths]) > 2 ** (ITEM_VECTORS * arguments.bits):
        parser.error(
            f"--bits {arguments.bits} allows only {2 ** (ITEM_VECTORS * arguments.bits)} different items; raise it"
        )
    generator = random.Random(arguments.seed)
    draw, markers = drawing(arguments.task, shortest, arguments.longest, arguments.bits)
    try:
        with explained_os_errors(arguments.folder):
            arguments.folder.mkdir(parents=True, exist_ok=True)
        write_vocabularies(arguments.folder, arguments.bits, markers)
        write(arguments.folder, "train", [draw(generator) for _ in range(arguments.size)])
        write(arguments.folder, "valid", [draw(generator) for _ in range(arguments.held_out)])
        for length in lengths:
            draw = drawing_at(arguments.task, length, arguments.longest, arguments.bits)
            write(arguments.folder, f"test.{length}", [draw(generator) for _ in range(arguments.held_out)])
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

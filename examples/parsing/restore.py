"""Convert the output of a model and the words of its sentences to trees in brackets.

    python examples/parsing/restore.py text/test.src --nbest 10 < test.hypotheses > test.parses

Lines that are not a tree of exactly the sentence's words are repaired, so that EVALB has no error sentences. The
script reports the numbers of repairs by kind on standard error. With --nbest K, each sentence has K lines, best first
(nmt-generate --nbest K). The script uses the first line that needs no repair, or the first line if all need repairs.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from linear import REPAIRS, restore
from trees import Tree, words_of

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, quantity


def best(lines: Sequence[str], words: Sequence[str]) -> tuple[Tree, Counter[str], int]:
    """Return the tree of the first line without repairs, or of the first line; its repairs; the line number from 0."""
    found = [restore(line, words) for line in lines]
    number = next((number for number, (_, repairs) in enumerate(found) if not repairs), 0)
    return *found[number], number


def all_best(
    hypotheses: Sequence[str], sentences: Sequence[str], nbest: int
) -> Iterator[tuple[Tree, Counter[str], int]]:
    if len(hypotheses) != nbest * len(sentences):
        found = f"{quantity(len(hypotheses), 'line')} of hypotheses for {quantity(len(sentences), 'sentence')}"
        raise DataError(f"{found}; with --nbest {nbest} there should be {nbest * len(sentences)}")
    for number, sentence in enumerate(sentences):
        try:
            yield best(hypotheses[number * nbest : (number + 1) * nbest], words_of(sentence))
        except DataError as error:
            raise DataError(f"line {number + 1}: {error}") from None


def report(repairs: Sequence[Counter[str]], later: int) -> str:
    """Return a line for all sentences, and one for each kind of repair that occurred."""
    total = sum(repairs, Counter[str]())
    repaired = f"{sum(map(bool, repairs))} of {quantity(len(repairs), 'sentence')} repaired"
    lines = [f"{repaired}, {later} taken from a later hypothesis"]
    lines += [f"{kind}: {total[kind]} {said}" for kind, said in REPAIRS.items() if total[kind]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Convert linearized trees and words to trees in brackets.")
    parser.add_argument("words", type=Path, help="file of sentences, with words separated by spaces")
    parser.add_argument("--nbest", type=int, default=1, help="lines per sentence, best first (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.nbest < 1:
        parser.error(f"--nbest must be at least 1, not {arguments.nbest}")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader of the pipe ends, as ``| head`` does
    try:
        sentences = [line or "" for line in Reading().lines(arguments.words)]
        hypotheses = [line or "" for line in Reading().stream(sys.stdin.buffer, "standard input")]
        results = list(all_best(hypotheses, sentences, arguments.nbest))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    for tree, _, _ in results:
        print(tree)
    print(report([repairs for _, repairs, _ in results], sum(number > 0 for *_, number in results)), file=sys.stderr)


if __name__ == "__main__":
    main()

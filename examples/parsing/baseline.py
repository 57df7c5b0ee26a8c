"""Make right-branching trees, a baseline for parsers.

    python examples/parsing/baseline.py < text/test.src > test.right-branching

Every word except the last two opens a node that extends to the end: (S The (VP dog (VP barks ...))). Punctuation at
the end belongs to the root, which is S. --label is the label of all other nodes.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from linear import PUNCTUATION, ROOT, XX, restore
from trees import words_of

from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError


def right_branching(words: Sequence[str], label: str) -> str:
    """Return the symbols of the tree as a line."""
    last = len(words)
    while last > 1 and words[last - 1] in PUNCTUATION:
        last -= 1
    nodes = max(0, last - 2)
    inner = [part for _ in range(nodes) for part in (XX, f"({label}")] + [XX] * min(2, last) + [f"){label}"] * nodes
    return " ".join([f"({ROOT}", *inner, *[XX] * (len(words) - last), f"){ROOT}"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Make right-branching trees of sentences.")
    parser.add_argument("--label", default="VP", help="label of all nodes except the root (default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader of the pipe ends, as ``| head`` does
    try:
        for number, line in enumerate(Reading().stream(sys.stdin.buffer, "standard input"), start=1):
            words = words_of(line or "")
            if not words:
                raise DataError(f"line {number} has no words; leave empty lines out")
            print(restore(right_branching(words, arguments.label), words)[0])
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

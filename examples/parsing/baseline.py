"""Right-branching trees: what a parser must beat.

    python examples/parsing/baseline.py < text/test.src > test.right-branching

Every word but the last two opens a node that goes on to the end: (S The (VP dog (VP barks ...))). Punctuation at the end
belongs to the root, which is S; --label is that of all other nodes.
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
    """The line of the tree's symbols."""
    last = len(words)
    while last > 1 and words[last - 1] in PUNCTUATION:
        last -= 1
    nodes = max(0, last - 2)
    inner = [part for _ in range(nodes) for part in (XX, f"({label}")] + [XX] * min(2, last) + [f"){label}"] * nodes
    return " ".join([f"({ROOT}", *inner, *[XX] * (len(words) - last), f"){ROOT}"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Make right-branching trees of sentences.")
    parser.add_argument("--label", default="VP", help="of all nodes but the root (default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends as other filters do before ``| head``
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

"""Replace rare words by classes of their spelling, as in Petrov et al. 2006: capitals, digits, dashes, endings.

    python examples/parsing/classes.py text/train.src --min-count 2 < text/train.src > classes/train.src

A word that occurs fewer than --min-count times in the first file becomes a class such as UNK-lower-ing. In training,
classes replace words that occur once; in parsing, they replace unknown words. A line keeps its number of words.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections import Counter
from collections.abc import Container
from pathlib import Path

from trees import words_of

from nmt.data.text.lines import Reading
from nmt.errors import NMTError

ENDINGS = "ing ion ity ers est ed er ly al ic ous ive able ment ness s y".split()  # the first match counts


def class_of(word: str, first: bool, known: Container[str]) -> str:
    """Return the class of a word.

    ``first``: the word begins a sentence, so that a capital says little. Its class tells if the lower-case form is
    ``known``.
    """
    parts = ["UNK"]
    if re.search(r"[0-9]", word):
        parts.append("number" if not re.search(r"[A-Za-z]", word) else "digits")
    elif word[0].isupper():
        parts.append("capitals" if word.isupper() and len(word) > 1 else "capital")
        if first:
            parts.append("known" if word.lower() in known else "first")
    elif re.search(r"[a-z]", word):
        parts.append("lower")
    if "-" in word[1:-1]:
        parts.append("dash")
    if len(word) > 3 and word[-1].islower():
        parts += [ending for ending in ENDINGS if word.endswith(ending)][:1]
    return "-".join(parts)


def replaced(line: str, known: Container[str]) -> str:
    words = words_of(line)
    return " ".join(word if word in known else class_of(word, place == 0, known) for place, word in enumerate(words))


def main() -> None:
    parser = argparse.ArgumentParser(description="Replace rare words, line by line, by classes of their spelling.")
    parser.add_argument("training", type=Path, help="training text, for the counts of words")
    parser.add_argument(
        "--min-count", type=int, default=2, help="minimum count of a word to keep (default: %(default)s)"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader of the pipe ends, as ``| head`` does
    try:
        counts = Counter(word for line in Reading().lines(arguments.training) for word in words_of(line or ""))
        known = {word for word, count in counts.items() if count >= arguments.min_count}
        for line in Reading().stream(sys.stdin.buffer, "standard input"):
            print(replaced(line or "", known))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

"""Sentences cut into words as the Penn Treebank cuts them: do n't, the dog 's, `` quoted '', -LRB- for a bracket.

    python examples/parsing/words.py < text.en > sentences.txt

One sentence is one line, of which only the last full stop stands alone: those of "Mr." and "St." stay.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys

from nmt.data.text.lines import Reading
from nmt.errors import NMTError

BRACKETS = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
RULES = (
    (r"[’‘]", "'"),
    (r"[“”]", '"'),
    (r'(^|[\s([{-])"', r"\1 `` "),  # a quotation begins at the start of a word, and ends elsewhere
    (r'"', " '' "),
    (r"([()\[\]{}])", lambda match: f" {BRACKETS[match[0]]} "),
    (r"(--|\.\.\.|[;@#?!]|[A-Z]{0,2}\$|%(?!-))", r" \1 "),  # US$ is a word, and 62%-owned
    (r"([,:])(?![0-9])", r" \1 "),  # 1,000 and 10:30 are a word each
    (r"(?<![.\s])\.(?=(?:\s|'|-R[RSC]B-)*$)", " ."),
    (r"(?i)(?<=\w)(n't|'(?:s|m|d|re|ve|ll))(?!\w)", r" \1"),
    (r"(?<=\w)'(?!\w)", " '"),  # the dogs '
    (r"(?i)\b(can)(not)\b", r"\1 \2"),
)


def treebank_words(sentence: str) -> str:
    for pattern, words in RULES:
        sentence = re.sub(pattern, words, sentence)
    return " ".join(sentence.split())


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut sentences, one a line, into words as the Penn Treebank does.")
    parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends as other filters do before ``| head``
    try:
        for line in Reading().stream(sys.stdin.buffer, "standard input"):
            print(treebank_words(line or ""))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

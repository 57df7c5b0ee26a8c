"""Split sentences into words like the Penn Treebank: do n't, the dog 's, `` quoted '', -LRB- for a bracket.

    python examples/parsing/words.py < text.en > sentences.txt

Each line is one sentence. Only its last full stop becomes a separate word; those of "Mr." and "St." stay.
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
    (r"(--|\.\.\.|[;@#?!]|[A-Z]{0,2}\$|%(?!-))", r" \1 "),  # US$ and 62%-owned are one word each
    (r"([,:])(?![0-9])", r" \1 "),  # 1,000 and 10:30 are one word each
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
    parser = argparse.ArgumentParser(description="Split sentences, one per line, into words like the Penn Treebank.")
    parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader of the pipe ends, as ``| head`` does
    try:
        for line in Reading().stream(sys.stdin.buffer, "standard input"):
            print(treebank_words(line or ""))
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

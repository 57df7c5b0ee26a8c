"""Encoded sentence pairs, one chunk of a split at a time, and the verdict on each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.vocabulary import Flags, Ids, Ints, Vocabulary

Keys = npt.NDArray[np.uint64]
Verdicts = npt.NDArray[np.int8]
Columns = npt.NDArray[Any]  # of COLUMNS or SHARD_COLUMNS

# Shards store these columns of the pairs that they keep.
SHARD_COLUMNS = np.dtype(
    [
        ("number", "<i8"),  # position in the text, from 0
        ("source_key", "<u8"),  # equal text has equal keys
        ("pair_key", "<u8"),
        ("source_words", "<u4"),  # separated by white space; 0 if only tokens are known
        ("target_words", "<u4"),
        ("blank_source", "?"),  # only white space
        ("blank_target", "?"),
        ("copied", "?"),  # both sides are the same text
    ]
)
COLUMNS = np.dtype(
    [
        *SHARD_COLUMNS.descr,
        ("invalid", "?"),  # a side holds bytes that are not text
        ("text_verdict", "i1"),  # by the filters that need text
    ]
)


class Verdict(IntEnum):
    """``kept``, or the first filter that drops a pair, in the order of the filters."""

    kept = 0, "kept"
    invalid = 1, "bytes that are not text"
    empty_source = 2, "empty source"
    empty_target = 3, "empty target"
    too_short = 4, "shorter than filters.min_length"
    too_long = 5, "longer than filters.max_length"
    ratio = 6, "lengths differ more than filters.max_ratio"
    characters = 7, "longer than filters.max_characters"
    long_word = 8, "a word longer than filters.max_word"
    copied = 9, "both sides are the same text"
    digits = 10, "digits differ more than filters.max_digits_apart"
    punctuation = 11, "punctuation differs more than filters.max_punctuation_apart"
    source_script = 12, "source is not in filters.source_script"
    target_script = 13, "target is not in filters.target_script"
    leaked = 14, "also in a validation or test split"
    duplicate = 15, "pair seen before"

    text: str

    def __new__(cls, code: int, text: str) -> Verdict:
        verdict = int.__new__(cls, code)
        verdict._value_ = code
        verdict.text = text
        return verdict


@dataclass(frozen=True)
class EncodedSide:
    """Sentences in one flat array, each ending in eos."""

    tokens: Ids  # uint16 or uint32
    lengths: Ints  # eos included

    def take(self, kept: Flags) -> EncodedSide:
        if kept.all():
            return self
        return EncodedSide(self.tokens[np.repeat(kept, self.lengths)], self.lengths[kept])


@dataclass(frozen=True)
class EncodedPairs:
    """A chunk of a split: source and target, or the source alone, and ``COLUMNS`` of each pair."""

    sides: Sequence[EncodedSide]
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, kept: Flags) -> EncodedPairs:
        return EncodedPairs([side.take(kept) for side in self.sides], self.columns[kept])


def token_type(vocabulary: Vocabulary) -> type[np.unsignedinteger]:
    """Return the data type in which a corpus stores ids."""
    return np.uint16 if len(vocabulary) <= 2**16 else np.uint32

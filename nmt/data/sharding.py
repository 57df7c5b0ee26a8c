"""A corpus made in parts: ``--shard i/n`` prepares the i-th of n blocks of the training text, ``--merge`` joins them.

A shard is a corpus folder of its own. The first one holds valid and test as well. Beside its arrays stand, for the merge:

    <split>.facts.npy       of each pair that is kept: its number in the text, what tells it from others, its words
    shard.json              which shard it is, and what was counted of the pairs that were dropped
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.data.encoding import EncodedPairs
from nmt.data.filters import Reason
from nmt.data.finding_text import TRAIN
from nmt.data.parallel_text import ParallelText
from nmt.data.report import Dropped, SplitTally
from nmt.data.shard_folders import name_of
from nmt.data.vocabulary import Ints
from nmt.errors import DataError, UsageError
from nmt.storage.files import read_json, write_json

NAME = "shard.json"
FACTS = np.dtype(
    [
        ("number", "<i8"),
        ("source_key", "<u8"),
        ("pair_key", "<u8"),
        ("source_words", "<u4"),
        ("target_words", "<u4"),
        ("blank_source", "?"),
        ("blank_target", "?"),
        ("copied", "?"),
    ]
)
_SHARD = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")

Facts = npt.NDArray[Any]


@dataclass(frozen=True)
class Shard:
    """One of the parts that a training text is prepared in."""

    number: int  # from 1
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        match = _SHARD.fullmatch(text)
        if match is None or not int(match[1]) <= int(match[2]):
            raise UsageError(f"shard={text} must be a number and of how many, such as 2/8 (--shard 2/8)")
        return cls(int(match[1]), int(match[2]))

    def folder(self, destination: Path) -> Path:
        """Where it is written."""
        return destination / name_of(self.number, self.of)

    def of_texts(self, texts: Sequence[ParallelText], counts: Mapping[str, int]) -> list[ParallelText]:
        """What this shard prepares of the splits; ``counts``: their pairs."""
        taken = []
        for text in texts:
            if text.split == TRAIN:
                ends = [counts[TRAIN] * number // self.of for number in (self.number - 1, self.number)]
                if ends[0] == ends[1]:
                    raise UsageError(
                        f"shard={self.number}/{self.of} is empty: the training text has {counts[TRAIN]} pairs"
                    )
                taken.append(dataclasses.replace(text, block=(ends[0], ends[1])))
            elif self.number == 1:
                taken.append(text)
        return taken


def facts_of(kept: EncodedPairs, numbers: Ints) -> Facts:
    """What the merge must know of pairs with these numbers."""
    facts = np.zeros(len(numbers), dtype=FACTS)
    facts["number"] = numbers
    facts["source_key"], facts["pair_key"] = kept.source_keys, kept.pair_keys
    facts["source_words"], facts["target_words"] = kept.source_words, kept.target_words
    facts["blank_source"], facts["blank_target"], facts["copied"] = kept.blank_source, kept.blank_target, kept.copied
    return facts


def facts_file(folder: Path, split: str) -> Path:
    return folder / f"{split}.facts.npy"


def write_tallies(folder: Path, shard: Shard, tallies: Sequence[SplitTally], examples: Mapping[str, Any]) -> None:
    """What cannot be read from the arrays."""
    splits = {
        tally.split: {
            "read": tally.counts["read"],
            "dropped": {reason.name: [one.count, one.first_line] for reason, one in tally.dropped.items()},
            "examples": {
                reason: [[one.number, one.source, one.target] for one in some]
                for reason, some in examples[tally.split].items()
            },
        }
        for tally in tallies
    }
    write_json(folder / NAME, {"number": shard.number, "of": shard.of, "splits": splits})


@dataclass(frozen=True)
class Tallied:
    """What was counted in a shard of the pairs of a split that were dropped."""

    read: int
    dropped: Mapping[Reason, Dropped]
    examples: Mapping[str, Sequence[tuple[int, str, str]]]  # by the reason in words: number, source and target


def require_shard(folder: Path) -> None:
    if not (folder / NAME).is_file():
        raise DataError(f"{folder} is no shard of a corpus: {NAME} is missing; shards are made with --shard i/n")


def read_tallies(folder: Path) -> tuple[Shard, dict[str, Tallied]]:
    tree = read_json(folder / NAME)
    try:
        splits = {
            split: Tallied(
                facts["read"],
                {Reason[name]: Dropped(*dropped) for name, dropped in facts["dropped"].items()},
                {reason: [(one[0], one[1], one[2]) for one in some] for reason, some in facts["examples"].items()},
            )
            for split, facts in tree["splits"].items()
        }
        return Shard(tree["number"], tree["of"]), splits
    except (KeyError, TypeError, IndexError, AttributeError):
        raise DataError(f"{folder / NAME} is damaged; prepare the shard again") from None

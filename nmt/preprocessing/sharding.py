"""Shards of a corpus: ``--shard i/n`` prepares the i-th of n blocks of the training text, ``--merge`` joins them.

A shard is a corpus folder. The first one also holds valid and test. For the merge a shard has two more files:

    <split>.facts.npy       ``SHARD_COLUMNS`` of each kept pair
    shard.json              its number, and the counts and examples of dropped pairs
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.data.corpus.shard_folders import name_of
from nmt.data.text.parallel import ParallelText
from nmt.errors import DataError, UsageError, quantity
from nmt.preprocessing.corpus_writer import SplitTally
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.pairs import COLUMNS, SHARD_COLUMNS, Columns, Verdict
from nmt.reporting.corpus_page import Example, Examples
from nmt.reporting.preprocess_report import Dropped
from nmt.storage.arrays import map_array
from nmt.storage.files import write_json
from nmt.storage.reading import read_json

RECORD = "shard.json"
_SHARD = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")


@dataclass(frozen=True)
class Shard:
    """One of the blocks of a training text."""

    number: int  # from 1
    count: int  # of all shards

    @classmethod
    def parse(cls, text: str) -> Shard:
        match = _SHARD.fullmatch(text)
        if match is None or not int(match[1]) <= int(match[2]):
            raise UsageError(f"shard={text} must be a number and the total, such as 2/8 (--shard 2/8)")
        return cls(int(match[1]), int(match[2]))

    def folder(self, destination: Path) -> Path:
        return destination / name_of(self.number, self.count)

    def of_texts(self, texts: Sequence[ParallelText], counts: Mapping[str, int]) -> list[ParallelText]:
        """Return the text that this shard prepares. ``counts``: pairs of each split."""
        texts_here = []
        for text in texts:
            if text.split == TRAIN:
                begin, end = (counts[TRAIN] * number // self.count for number in (self.number - 1, self.number))
                if begin == end:
                    raise UsageError(
                        f"shard={self.number}/{self.count} is empty: the training text has "
                        f"{quantity(counts[TRAIN], 'pair')}; use at most {quantity(counts[TRAIN], 'shard')}"
                    )
                texts_here.append(dataclasses.replace(text, block=(begin, end)))
            elif self.number == 1:
                texts_here.append(text)
        return texts_here


def write_columns(folder: Path, split: str, chunks: Sequence[Columns]) -> None:
    """Store ``SHARD_COLUMNS`` of the kept pairs."""
    stored = np.zeros(sum(map(len, chunks)), dtype=SHARD_COLUMNS)
    for name in SHARD_COLUMNS.names or ():
        stored[name] = np.concatenate([chunk[name] for chunk in chunks])
    np.save(_columns_file(folder, split), stored)


def read_columns(folder: Path, split: str, begin: int, end: int, count: int) -> Columns:
    """Read ``COLUMNS`` of some of the ``count`` pairs of a split; those that are not stored are 0."""
    path = _columns_file(folder, split)
    stored = map_array(path)
    if stored.dtype != SHARD_COLUMNS or stored.shape != (count,):
        raise DataError(f"{path} is damaged: it should describe {count} pairs; prepare the shard again")
    columns = np.zeros(end - begin, dtype=COLUMNS)
    for name in SHARD_COLUMNS.names or ():
        columns[name] = stored[name][begin:end]
    return columns


def _columns_file(folder: Path, split: str) -> Path:
    return folder / f"{split}.facts.npy"


@dataclass(frozen=True)
class ShardSplit:
    """A split in the record of a shard."""

    read: int
    dropped: dict[Verdict, Dropped]
    examples: Examples


def write_record(folder: Path, shard: Shard, tallies: Iterable[SplitTally], examples: Mapping[str, Examples]) -> None:
    """Store the counts that the arrays do not have."""
    splits = {
        tally.split: {
            "read": tally.counts["read"],
            "dropped": {verdict.name: [drops.count, drops.first_line] for verdict, drops in tally.dropped.items()},
            "examples": {
                message: [[example.number, example.source, example.target] for example in shown]
                for message, shown in examples[tally.split].items()
            },
        }
        for tally in tallies
    }
    write_json(folder / RECORD, {"number": shard.number, "of": shard.count, "splits": splits})


def read_record(folder: Path) -> tuple[Shard, dict[str, ShardSplit]]:
    tree = read_json(folder / RECORD)
    try:
        splits = {
            split: ShardSplit(
                entry["read"],
                {Verdict[name]: Dropped(*dropped) for name, dropped in entry["dropped"].items()},
                {message: [Example(*example) for example in shown] for message, shown in entry["examples"].items()},
            )
            for split, entry in tree["splits"].items()
        }
        return Shard(tree["number"], tree["of"]), splits
    except (KeyError, TypeError, IndexError, AttributeError):
        raise DataError(f"{folder / RECORD} is damaged; prepare the shard again") from None

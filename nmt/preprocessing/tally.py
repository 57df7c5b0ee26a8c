"""Counts of a split while it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, quantity
from nmt.preprocessing.pairs import EncodedPairs, Keys, Verdict, Verdicts
from nmt.reporting.corpus_page import Example
from nmt.reporting.preprocess_report import Dropped, Overlap, SideReport, SplitReport

EXAMPLES = 3  # dropped pairs stored for each verdict
_WITHOUT_EXAMPLES = (Verdict.kept, Verdict.duplicate)  # a duplicate is still among the kept pairs


class SplitTally:
    """Counts of one split, and the keys of its kept pairs: 16 bytes a pair."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.counts = Counter(read=0, kept=0, blank=0, copied=0)
        self.dropped: dict[Verdict, Dropped] = {}
        self.examples: dict[Verdict, list[int]] = {}  # numbers of the first dropped pairs, from 0
        self._tokens = np.zeros((2, 3), dtype=np.int64)  # tokens, unknown tokens and words, of source and target
        self._source_keys: list[Keys] = []
        self._pair_keys: list[Keys] = []

    def add(self, pairs: EncodedPairs, verdicts: Verdicts, kept: EncodedPairs) -> None:
        """Count a chunk with the verdicts on its pairs."""
        self.counts["read"] += len(pairs)
        for verdict in Verdict:
            numbers = pairs.columns["number"][verdicts == verdict]
            if verdict is not Verdict.kept and len(numbers):
                examples = self.examples.setdefault(verdict, [])
                examples += numbers[: EXAMPLES - len(examples)].tolist()
                self._add_dropped(verdict, Dropped(len(numbers), int(numbers[0]) + 1))
        self.keep(kept)

    def add_shard(self, dropped: dict[Verdict, Dropped]) -> None:
        """Count the pairs that were dropped when a shard was written."""
        for verdict, more in dropped.items():
            self.counts["read"] += more.count
            self._add_dropped(verdict, more)

    def keep(self, kept: EncodedPairs) -> None:
        """Count pairs that are kept."""
        columns = kept.columns
        blank = columns["blank_source"]
        if len(kept.sides) > 1:
            blank = blank | columns["blank_target"]
        self.counts.update(kept=len(kept), blank=int(blank.sum()), copied=int(columns["copied"].sum()))
        for row, side in enumerate(kept.sides):
            words = int(columns["target_words" if row else "source_words"].sum())
            self._tokens[row] += len(side.tokens) - len(side.lengths), int((side.tokens == UNK).sum()), words
        self._source_keys.append(np.ascontiguousarray(columns["source_key"]))
        self._pair_keys.append(np.ascontiguousarray(columns["pair_key"]))

    def _add_dropped(self, verdict: Verdict, more: Dropped) -> None:
        before = self.dropped.get(verdict, Dropped(0, more.first_line))
        self.dropped[verdict] = Dropped(before.count + more.count, min(before.first_line, more.first_line))

    @property
    def source_keys(self) -> Keys:
        """The keys of the kept sources."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._source_keys])

    @property
    def pair_keys(self) -> Keys:
        """The keys of the kept pairs."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._pair_keys])

    def require_enough(self) -> None:
        """Refuse training text of which more than half is unusable."""
        lost = sum(dropped.count for verdict, dropped in self.dropped.items() if verdict is not Verdict.duplicate)
        read, kept = self.counts["read"], self.counts["kept"]
        if 2 * lost > read or not kept:
            histogram = "; ".join(
                f"{dropped.count} {verdict.text} (first in line {dropped.first_line})"
                for verdict, dropped in sorted(self.dropped.items())
            )
            raise DataError(f"{read - kept} of {quantity(read, f'{self.split} pair')} would be dropped: {histogram}")

    def report(self, languages: Sequence[str]) -> SplitReport:
        """``languages``: source and target, or the source alone."""
        sides = [SideReport(language, *counts) for language, counts in zip(languages, self._tokens.tolist())]
        keys = self.pair_keys
        keys.sort()
        return SplitReport(
            split=self.split,
            **self.counts,
            dropped={verdict.text: dropped for verdict, dropped in sorted(self.dropped.items())},
            duplicates=int(np.count_nonzero(keys[1:] == keys[:-1])),
            source=sides[0],
            target=sides[1] if len(sides) > 1 else None,
        )

    def overlap(self, other: SplitTally) -> Overlap:
        """Count the pairs and sources of this split that are in another too."""
        sources = int(np.isin(self.source_keys, other.source_keys).sum())
        pairs = int(np.isin(self.pair_keys, other.pair_keys).sum())
        return Overlap(self.split, other.split, pairs, sources)

    def read_examples(self, text: ParallelText, reading: Reading) -> dict[str, list[Example]]:
        """Read the first pairs that were dropped, by verdict; duplicates are omitted. Reads as far as the last of them."""
        shown = {verdict: numbers for verdict, numbers in self.examples.items() if verdict not in _WITHOUT_EXAMPLES}
        line_numbers = {number for numbers in shown.values() for number in numbers}
        examples: dict[int, Example] = {}
        for number, pair in enumerate(text.pairs(reading), start=text.begin) if line_numbers else ():
            if number in line_numbers:
                examples[number] = Example(number + 1, *(side or "" for side in pair))
                if len(examples) == len(line_numbers):
                    break
        return {verdict.text: [examples[number] for number in numbers] for verdict, numbers in sorted(shown.items())}

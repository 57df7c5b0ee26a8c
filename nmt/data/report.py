"""What preprocessing found in the text: counts, drops, unknowns, duplicates and leaks between splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.encoding import EncodedPairs, Keys
from nmt.data.filters import Codes, Reason
from nmt.data.vocabulary import UNK, Ints
from nmt.errors import DataError

EXAMPLES = 3  # of pairs that are dropped for one reason


@dataclass(frozen=True)
class Dropped:
    """Pairs dropped for one reason."""

    count: int
    first_line: int  # from 1


@dataclass(frozen=True)
class SideReport:
    """One language of a split, as kept."""

    language: str
    pieces: int  # without eos
    unknown: int
    words: int = 0  # what stands between white space; zero: only pieces were known

    @property
    def unknown_percent(self) -> float:
        return 100 * self.unknown / self.pieces if self.pieces else 0.0


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    split: str
    read: int
    kept: int
    dropped: Mapping[str, Dropped]  # by reason, in words
    blank: int  # kept pairs with an empty side (valid and test keep every line)
    copied: int  # kept pairs whose sides are the same text
    duplicates: int  # kept pairs that stood in this split before
    source: SideReport
    target: SideReport | None

    def lines(self) -> Iterator[str]:
        yield f"{self.split}: {self.kept:,} of {self.read:,} pairs kept"
        for reason, dropped in self.dropped.items():
            yield f"{self.split}: {dropped.count:,} dropped: {reason} (first in line {dropped.first_line:,})"
        for side in filter(None, (self.source, self.target)):
            percent = f"({side.unknown_percent:.2f} %)"
            yield f"{self.split} {side.language}: {side.pieces:,} pieces, {side.unknown:,} unknown {percent}"
        if self.duplicates:
            yield f"{self.split}: {self.duplicates:,} pairs are repetitions"

    def warnings(self) -> Iterator[str]:
        if self.blank:
            yield f"{self.split}: {self.blank:,} pairs have an empty side; they are kept, since every line counts"
        if self.copied and self.copied == self.kept:
            yield f"{self.split}: source and target are the same text throughout; was one file given twice?"
        for side in filter(None, (self.source, self.target)):
            if side.unknown_percent > 5:
                yield (
                    f"{self.split} {side.language}: {side.unknown_percent:.1f} % of the pieces are unknown; is it the same "
                    f"kind of text as the training split?"
                )


@dataclass(frozen=True)
class Overlap:
    """What of ``split`` stands in ``other`` too."""

    split: str
    other: str
    pairs: int
    sources: int


@dataclass(frozen=True)
class PreprocessReport:
    """The result of preprocessing, for people and for the manifest."""

    folder: str
    source_entries: int  # vocabulary sizes, specials included
    target_entries: int
    shared: bool
    splits: Sequence[SplitReport]
    overlaps: Sequence[Overlap]

    def lines(self) -> list[str]:
        """The report as text."""
        kind = "joint vocabulary" if self.shared else "vocabularies"
        sizes = f"{self.source_entries:,}" if self.shared else f"{self.source_entries:,} and {self.target_entries:,}"
        return [f"{kind}: {sizes} entries", *(line for split in self.splits for line in split.lines())]

    def warnings(self) -> list[str]:
        """What deserves a second look, though nothing is wrong with the files."""
        found = [warning for split in self.splits for warning in split.warnings()]
        for overlap in self.overlaps:
            if overlap.sources:
                found.append(
                    f"{overlap.split} overlaps {overlap.other}: {overlap.pairs:,} of its pairs and {overlap.sources:,} of "
                    f"its sources stand there too"
                )
        return found


def _repeated(keys: Keys) -> int:
    """How many of these stood there before. Sorts them."""
    keys.sort()
    return int(np.count_nonzero(keys[1:] == keys[:-1]))


class SplitTally:
    """Counts of one split while it is written."""

    def __init__(self, split: str, begin: int = 0) -> None:
        """``begin``: the number of its first pair in the text."""
        self.split, self._begin = split, begin
        self.counts = Counter(read=0, kept=0, blank=0, copied=0)
        self.dropped: dict[Reason, Dropped] = {}
        self.examples: dict[Reason, list[int]] = {}  # the first pairs that are dropped, by their numbers from 0
        self._pieces = np.zeros((2, 3), dtype=np.int64)  # unknown ones and words, of source and target
        self._keys: tuple[list[Keys], list[Keys]] = [], []  # of sources and of pairs

    def add(self, codes: Codes, kept: EncodedPairs) -> None:
        """Count a chunk: the verdict on each pair, and what is kept."""
        self.drop(codes, np.arange(self._begin + self.counts["read"], self._begin + self.counts["read"] + len(codes)))
        self.counts["read"] += len(codes)
        self.keep(kept)

    def drop(self, codes: Codes, numbers: Ints) -> None:
        """Count the verdicts on pairs with these numbers, from 0."""
        for reason in Reason:
            found = numbers[codes == reason]
            if reason is not Reason.kept and len(found):
                shown = self.examples.setdefault(reason, [])
                shown += found[: EXAMPLES - len(shown)].tolist()
                self.drop_more(reason, Dropped(len(found), int(found[0]) + 1))

    def drop_more(self, reason: Reason, dropped: Dropped) -> None:
        """Count pairs that come after those before."""
        before = self.dropped.get(reason, Dropped(0, dropped.first_line))
        self.dropped[reason] = Dropped(before.count + dropped.count, min(before.first_line, dropped.first_line))

    def keep(self, kept: EncodedPairs) -> None:
        """Count pairs that are kept."""
        blank = kept.blank_source | (kept.blank_target & (kept.target is not None))
        self.counts.update(kept=len(blank), blank=int(blank.sum()), copied=int(kept.copied.sum()))
        for row, (side, words) in enumerate(((kept.source, kept.source_words), (kept.target, kept.target_words))):
            if side is not None:
                pieces, unknown = len(side.tokens) - len(side.lengths), int((side.tokens == UNK).sum())
                self._pieces[row] += pieces, unknown, int(words.sum())
        for keys, found in zip(self._keys, (kept.source_keys, kept.pair_keys)):
            keys.append(found)

    def keys(self, *, pairs: bool) -> Keys:
        """Of the sources that are kept, or of the pairs."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._keys[pairs]])

    def require_enough(self) -> None:
        """Training text of which more than half is unusable is not the text that was meant."""
        lost = sum(dropped.count for reason, dropped in self.dropped.items() if reason is not Reason.duplicate)
        read, kept = self.counts["read"], self.counts["kept"]
        if 2 * lost > read or not kept:
            histogram = "; ".join(
                f"{dropped.count} {reason.text} (first in line {dropped.first_line})"
                for reason, dropped in sorted(self.dropped.items())
            )
            raise DataError(f"{read - kept} of {read} {self.split} pairs would be dropped: {histogram}")

    def report(self, *languages: str) -> SplitReport:
        """``languages``: source and target, or the source alone."""
        sides = [SideReport(language, *counts) for language, counts in zip(languages, self._pieces.tolist())]
        return SplitReport(
            split=self.split,
            **self.counts,
            dropped={reason.text: dropped for reason, dropped in sorted(self.dropped.items())},
            duplicates=_repeated(self.keys(pairs=True)),
            source=sides[0],
            target=sides[1] if len(sides) > 1 else None,
        )

    def overlap(self, other: SplitTally) -> Overlap:
        """What of this split stands in another too."""
        both = ((np.concatenate(mine), np.concatenate(theirs)) for mine, theirs in zip(self._keys, other._keys))
        sources, pairs = (int(np.isin(*keys).sum()) for keys in both)
        return Overlap(self.split, other.split, pairs, sources)

"""The report of preprocessing: counts of pairs, dropped pairs, unknown tokens, duplicates and overlaps of splits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nmt.errors import quantity


@dataclass(frozen=True)
class Dropped:
    """Pairs dropped by one filter."""

    count: int
    first_line: int  # from 1


@dataclass(frozen=True)
class SideReport:
    """One language of the kept pairs of a split."""

    language: str
    pieces: int  # without eos
    unknown: int
    words: int = 0  # separated by white space; 0 if only tokens were known

    @property
    def unknown_percent(self) -> float:
        return 100 * self.unknown / self.pieces if self.pieces else 0.0


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    split: str
    read: int
    kept: int
    dropped: Mapping[str, Dropped]  # by the filter's message
    blank: int  # kept pairs with an empty side (valid and test keep every line)
    copied: int  # kept pairs whose sides are the same text
    duplicates: int  # kept pairs that are repeated in this split
    source: SideReport
    target: SideReport | None

    def lines(self) -> Iterator[str]:
        yield f"{self.split}: {self.kept:,} of {quantity(self.read, 'pair')} kept"
        for reason, dropped in self.dropped.items():
            yield f"{self.split}: {dropped.count:,} dropped: {reason} (first in line {dropped.first_line:,})"
        for side in filter(None, (self.source, self.target)):
            percent = f"({side.unknown_percent:.2f} %)"
            yield f"{self.split} {side.language}: {quantity(side.pieces, 'token')}, {side.unknown:,} unknown {percent}"
        if self.duplicates:
            yield f"{self.split}: {quantity(self.duplicates, 'repeated pair')}"

    def warnings(self) -> Iterator[str]:
        if self.blank:
            yield f"{self.split}: {quantity(self.blank, 'pair')} with an empty side; kept, like every line of this split"
        if self.copied and self.copied == self.kept:
            yield f"{self.split}: source and target are identical; was one file given twice?"
        for side in filter(None, (self.source, self.target)):
            if side.unknown_percent > 5:
                yield (
                    f"{self.split} {side.language}: {side.unknown_percent:.1f} % of the tokens are unknown; is it the same "
                    f"kind of text as the training split?"
                )


@dataclass(frozen=True)
class Overlap:
    """Pairs and sources of ``split`` that are in ``other`` too."""

    split: str
    other: str
    pairs: int
    sources: int


@dataclass(frozen=True)
class PreprocessReport:
    """The result of preprocessing, for users and for the manifest."""

    folder: str
    source_entries: int  # vocabulary sizes, specials included
    target_entries: int
    shared: bool
    splits: Sequence[SplitReport]
    overlaps: Sequence[Overlap]

    def __repr__(self) -> str:
        splits = ", ".join(f"{split.split} {quantity(split.kept, 'pair')}" for split in self.splits)
        return f"<PreprocessReport {self.folder}: {splits}>"

    def lines(self) -> list[str]:
        kind = "joint vocabulary" if self.shared else "vocabularies"
        sizes = f"{self.source_entries:,}" if self.shared else f"{self.source_entries:,} and {self.target_entries:,}"
        return [f"{kind}: {sizes} entries", *(line for split in self.splits for line in split.lines())]

    def log(self, logger: logging.Logger) -> None:
        for line in self.lines():
            logger.info(line)
        for warning in self.warnings():
            logger.warning(warning)

    def warnings(self) -> list[str]:
        """Hints at mistakes that leave the files valid."""
        warnings = [warning for split in self.splits for warning in split.warnings()]
        for overlap in self.overlaps:
            if overlap.sources:
                warnings.append(
                    f"{overlap.split} overlaps {overlap.other}: {overlap.pairs:,} of its pairs and {overlap.sources:,} of "
                    f"its sources are also there"
                )
        return warnings

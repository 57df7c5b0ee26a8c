"""Write a corpus folder, and count its splits: of text, of merged shards or of a folder of fairseq."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.plain import to_plain
from nmt.data.corpus.folder import FORMAT, KIND
from nmt.data.corpus.rows import ragged_writer, sentence_files
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, quantity
from nmt.preprocessing.filters import PairFilter
from nmt.preprocessing.pairs import EncodedPairs, Keys, Verdict, Verdicts, token_type
from nmt.progress import ReportPairs
from nmt.reporting import corpus_page
from nmt.reporting.corpus_page import Example
from nmt.reporting.preprocess_report import Dropped, Overlap, PreprocessReport, SideReport, SplitReport
from nmt.storage.files import write_manifest

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
        self._keys: dict[str, list[Keys]] = {"source_key": [], "pair_key": []}

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
        columns = kept.columns
        blank = columns["blank_source"]
        if len(kept.sides) > 1:
            blank = blank | columns["blank_target"]
        self.counts.update(kept=len(kept), blank=int(blank.sum()), copied=int(columns["copied"].sum()))
        for row, side in enumerate(kept.sides):
            words = int(columns["target_words" if row else "source_words"].sum())
            self._tokens[row] += len(side.tokens) - len(side.lengths), int((side.tokens == UNK).sum()), words
        for name, keys in self._keys.items():
            keys.append(np.ascontiguousarray(columns[name]))

    def _add_dropped(self, verdict: Verdict, more: Dropped) -> None:
        before = self.dropped.get(verdict, Dropped(0, more.first_line))
        self.dropped[verdict] = Dropped(before.count + more.count, min(before.first_line, more.first_line))

    def keys(self, name: str) -> Keys:
        """Return the keys of the kept pairs; ``name``: "source_key" or "pair_key"."""
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._keys[name]])

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
        keys = self.keys("pair_key")
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
        pairs, sources = (int(np.isin(self.keys(key), other.keys(key)).sum()) for key in ("pair_key", "source_key"))
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


class CorpusWriter:
    """Write a corpus folder: the tokenizer, then each split, at last the page and the manifest."""

    def __init__(self, folder: Path, pair: LanguagePair, progress: ReportPairs, *, only_source: bool) -> None:
        self.folder, self.progress = folder, progress
        self.sides = pair.sides(only_source)
        self.languages = [language for language, _ in self.sides]
        self.tallies: dict[str, SplitTally] = {}  # by split
        self._pair, self._only_source = pair, only_source
        pair.save(folder / "tokenizer")

    def write(
        self,
        split: str,
        chunks: Iterable[EncodedPairs],
        count: int,
        filters: PairFilter | None = None,
        on_kept: Callable[[EncodedPairs], None] | None = None,
    ) -> Verdicts:
        """Filter, count and write a split of ``count`` pairs; return the verdict on each pair.

        Without ``filters`` all pairs are kept. ``on_kept`` receives the kept pairs of each chunk.
        """
        tally = self.tallies[split] = SplitTally(split)
        verdicts, written = [np.zeros(0, dtype=np.int8)], 0
        with contextlib.ExitStack() as stack:
            appends = []
            for language, tokenizer in self.sides:
                files = sentence_files(self.folder, split, language)
                appends.append(stack.enter_context(ragged_writer(*files, token_type(tokenizer.vocabulary))))
            for pairs in chunks:
                verdicts.append(filters.judge(pairs) if filters else np.zeros(len(pairs), dtype=np.int8))
                kept = pairs.take(verdicts[-1] == Verdict.kept)
                tally.add(pairs, verdicts[-1], kept)
                for append, side in zip(appends, kept.sides):
                    append(side.tokens, side.lengths)
                if on_kept is not None:
                    on_kept(kept)
                written += len(pairs)
                self.progress(split, written, count)
        return np.concatenate(verdicts)

    def complete(
        self, destination: str, examples: Mapping[str, corpus_page.Examples] | None = None, **entries: Any
    ) -> PreprocessReport:
        """Write the manifest of the folder, which becomes ``destination``, and return its report.

        ``examples``: dropped pairs of each split, for the page; None: no page. ``entries``: further entries of the manifest.
        """
        pair, tallies = self._pair, self.tallies.values()
        report = PreprocessReport(
            folder=destination,
            source_entries=len(pair.source.vocabulary),
            target_entries=len(pair.target.vocabulary),
            shared=pair.shared,
            splits=[tally.report(self.languages) for tally in tallies],
            overlaps=[later.overlap(earlier) for earlier, later in itertools.combinations(tallies, 2)],
        )
        if examples is not None:
            corpus_page.write(self.folder, pair, report, examples)
        write_manifest(
            self.folder,
            KIND,
            FORMAT,
            splits=list(self.tallies),
            source_lang=pair.source_lang,
            target_lang=pair.target_lang,
            only_source=self._only_source,
            vocabularies=pair.digest(),
            report=to_plain(report),
            **entries,
        )
        return report

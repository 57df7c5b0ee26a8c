"""The splits of text in a corpus folder: encoded and filtered, with their lines and alignments."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nmt.config.preprocessing import Leaked, PreprocessConfig
from nmt.data.corpus.stored_text import write_text
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.errors import DataError, quantity
from nmt.preprocessing.alignments import write_alignments
from nmt.preprocessing.encoding import encode_all
from nmt.preprocessing.filters import PairFilter, TextFilter
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.pairs import Columns, EncodedPairs, Keys, Verdict, Verdicts
from nmt.preprocessing.sharding import Shard, write_columns
from nmt.preprocessing.split_writer import write_split
from nmt.preprocessing.tally import SplitTally
from nmt.progress import ReportPairs, going_on
from nmt.storage.files import atomic_write

logger = logging.getLogger("nmt.preprocessing")


@dataclass(frozen=True)
class TextSplits:
    """Writes splits of text to ``folder``, or those of a shard."""

    folder: Path
    pair: LanguagePair
    config: PreprocessConfig
    reading: Reading
    progress: ReportPairs
    shard: Shard | None = None

    def write(self, texts: Sequence[ParallelText], counts: Mapping[str, int]) -> dict[ParallelText, SplitTally]:
        """Write all splits; return what each counted. ``counts``: pairs of each split.

        With ``filters.drop_leaked`` the training text is written last, since the other splits must be known. A shard
        encodes those that it does not hold, too.
        """
        leaked = self.config.filters.drop_leaked
        texts_here = list(texts) if self.shard is None else self.shard.of_texts(texts, counts)
        tallies: dict[ParallelText, SplitTally] = {}
        for text in sorted(texts_here, key=lambda text: text.split == TRAIN and leaked is not None):
            leaks = None
            if text.split == TRAIN and leaked is not None:
                known = {written.split: tally for written, tally in tallies.items()}
                others = [other for other in texts if other.split != TRAIN]
                leaks = _keys([known.get(other.split) or self._encoded_tally(other) for other in others], leaked)
            count = counts[text.split] if text.block is None else text.block[1] - text.block[0]
            tallies[text] = self._write(text, count, leaks)
        return {text: tallies[text] for text in texts_here}

    def _encoded_tally(self, text: ParallelText) -> SplitTally:
        """Count a split that is not written here."""
        tally = SplitTally(text.split)
        with contextlib.closing(self._encoded(text)) as encoded:
            for chunk in encoded:
                tally.keep(chunk)
        return tally

    def _write(self, text: ParallelText, count: int, leaks: Keys | None) -> SplitTally:
        """Write a split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
        tally, columns, trains = SplitTally(text.split), list[Columns](), text.split == TRAIN
        direction = self.pair.direction()
        tags = len(direction.source), len(direction.target)
        with contextlib.closing(self._encoded(text)) as encoded:
            verdicts = write_split(
                self.folder,
                tally,
                self.pair.sides(not text.has_target),
                encoded,
                count=count,
                progress=self.progress,
                filters=PairFilter(self.config.filters, leaks, tags) if trains else None,
                on_kept=None if self.shard is None else lambda kept: columns.append(kept.columns),
            )
        if len(verdicts) != count:
            raise DataError(
                f"{text.called(0)} changed while it was read: {quantity(count, 'line')} at first, then {len(verdicts)}"
            )
        if self.shard is not None:
            write_columns(self.folder, text.split, columns)
        if trains and self.config.keep_dropped is not None:
            self._write_dropped(Path(self.config.keep_dropped), text, verdicts)
        if trains and self.shard is None:  # the merge checks all shards together
            tally.require_enough()
        if not trains or self.config.keep_text:
            self._write_lines(text, verdicts)
        if text.alignments:
            self._write_alignments(text, verdicts)
        return tally

    def _encoded(self, text: ParallelText) -> Generator[EncodedPairs, None, None]:
        filters = self.config.filters
        return encode_all(
            text.pairs(self.reading),
            self.pair,
            only_source=not text.has_target,
            workers=self.config.workers,
            text_filter=TextFilter(filters) if text.split == TRAIN else None,
            near=filters.near_duplicates,
            first=text.begin,
        )

    def _write_lines(self, text: ParallelText, verdicts: Verdicts) -> None:
        for number, (language, _) in enumerate(self.pair.sides(not text.has_target)):
            kept = itertools.compress(text.side(number, self.reading), verdicts == Verdict.kept)
            lines = (line or "" for line in kept)  # a skipped line is empty
            write_text(self.folder, text.split, language, lines, offsets=self.config.keep_text)

    def _write_alignments(self, text: ParallelText, verdicts: Verdicts) -> None:
        with going_on(f"{text.split}: numbering the tokens of alignments", self.config.progress):
            lost = write_alignments(self.folder, text, self.pair, self.reading, verdicts == Verdict.kept)
        if lost:
            pairs = quantity(lost, "pair")
            logger.warning(f"{text.split}: dropped the alignments of {pairs}: some tokens span several words")

    def _write_dropped(self, path: Path, text: ParallelText, verdicts: Verdicts) -> None:
        """Write a line for each dropped pair: verdict, number, source and target, separated by tabs."""
        with contextlib.ExitStack() as stack:
            file: BinaryIO | gzip.GzipFile = stack.enter_context(atomic_write(path))
            if path.suffix == ".gz":  # without the temporary name and the time: equal pairs give equal bytes
                file = stack.enter_context(gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0))
            names = {int(verdict): verdict.text for verdict in Verdict}
            numbered = zip(itertools.count(text.begin + 1), verdicts.tolist(), text.pairs(self.reading))
            for number, verdict, pair in numbered:
                if verdict != Verdict.kept:
                    sides = ((side or "").replace("\t", " ") for side in pair)
                    file.write("\t".join([names[verdict], str(number), *sides]).encode() + b"\n")


def _keys(tallies: Sequence[SplitTally], leaked: Leaked) -> Keys:
    every = [tally.pair_keys if leaked is Leaked.pairs else tally.source_keys for tally in tallies]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *every]))

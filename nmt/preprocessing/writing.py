"""Write one corpus folder: encoded and filtered splits with their lines and alignments, report, page and manifest."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import itertools
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nmt.config.choices import WeightKind
from nmt.config.plain import to_plain
from nmt.config.preprocessing import Leaked, PreprocessConfig
from nmt.data.corpus.stored_text import write_text
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.errors import DataError, quantity
from nmt.preprocessing.alignments import check_alignments, write_alignments
from nmt.preprocessing.corpus_writer import CorpusWriter, SplitTally
from nmt.preprocessing.encoding import encode_all
from nmt.preprocessing.filters import PairFilter, TextFilter
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.pairs import Columns, EncodedPairs, Keys, Verdict, Verdicts
from nmt.preprocessing.sharding import Shard, write_columns, write_record
from nmt.preprocessing.weights import check_weights, write_weights
from nmt.progress import ReportPairs, going_on
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import atomic_write

logger = logging.getLogger("nmt.preprocessing")


def count_pairs(texts: Sequence[ParallelText], reading: Reading, weights: WeightKind) -> dict[str, int]:
    """Read all text once and return the pairs of each split; faulty text is an error."""
    counts = {text.split: text.count(reading) for text in texts}
    for text in texts:
        for path, aligned in zip(text.alignments, text.parts):
            check_alignments(path, aligned, reading)
        for weighted, part in zip(text.weights, text.parts):
            check_weights(weighted, part, reading, weights)
    return counts


def write_corpus(
    folder: Path,
    destination: Path,
    config: PreprocessConfig,
    pair: LanguagePair,
    texts: Sequence[ParallelText],
    counts: Mapping[str, int],
    progress: ReportPairs,
    shard: Shard | None = None,
    **entries: Any,
) -> PreprocessReport:
    """Write ``texts`` to ``folder``, which becomes ``destination``. ``entries``: further entries of the manifest."""
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    writer = CorpusWriter(folder, pair, progress, only_source=config.only_source)
    written = TextSplits(writer, pair, config, reading, shard).write(texts, counts)
    examples = {text.split: writer.tallies[text.split].read_examples(text, reading) for text in written}
    if shard is not None:
        write_record(folder, shard, writer.tallies.values(), examples)
    options = to_plain(dataclasses.replace(config, destdir=str(destination)))
    return writer.complete(str(destination), examples, config=options, **entries)


@dataclass(frozen=True)
class TextSplits:
    """Write the splits of text, or those of a shard."""

    writer: CorpusWriter
    pair: LanguagePair
    config: PreprocessConfig
    reading: Reading
    shard: Shard | None = None

    def write(self, texts: Sequence[ParallelText], counts: Mapping[str, int]) -> list[ParallelText]:
        """Write all splits, and return those that are written here. ``counts``: pairs of each split.

        With ``filters.drop_leaked`` the training text is written last, since the other splits must be known. A shard
        encodes those that it does not hold, too.
        """
        leaked = self.config.filters.drop_leaked
        texts_here = list(texts) if self.shard is None else self.shard.of_texts(texts, counts)
        tallies = self.writer.tallies
        for text in sorted(texts_here, key=lambda text: text.split == TRAIN and leaked is not None):
            leaks = None
            if text.split == TRAIN and leaked is not None:
                others = [other for other in texts if other.split != TRAIN]
                leaks = _keys([tallies.get(other.split) or self._encoded_tally(other) for other in others], leaked)
            count = counts[text.split] if text.block is None else text.block[1] - text.block[0]
            self._write(text, count, leaks)
        self.writer.tallies = {text.split: tallies[text.split] for text in texts_here}
        return texts_here

    def _encoded_tally(self, text: ParallelText) -> SplitTally:
        """Count a split that is not written here."""
        tally = SplitTally(text.split)
        with contextlib.closing(self._encoded(text)) as encoded:
            for chunk in encoded:
                tally.keep(chunk)
        return tally

    def _write(self, text: ParallelText, count: int, leaks: Keys | None) -> None:
        """Write a split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
        columns, trains, direction = list[Columns](), text.split == TRAIN, self.pair.direction()
        tags = len(direction.source), len(direction.target)
        filters = PairFilter(self.config.filters, leaks, tags) if trains else None
        on_kept = None if self.shard is None else lambda kept: columns.append(kept.columns)
        with contextlib.closing(self._encoded(text)) as encoded:
            verdicts = self.writer.write(text.split, encoded, count, filters, on_kept)
        if len(verdicts) != count:
            raise DataError(
                f"{text.called(0)} changed while it was read: {quantity(count, 'line')} at first, then {len(verdicts)}"
            )
        if self.shard is not None:
            write_columns(self.writer.folder, text.split, columns)
        if trains and self.config.keep_dropped is not None:
            self._write_dropped(Path(self.config.keep_dropped), text, verdicts)
        if trains and self.shard is None:  # the merge checks all shards together
            self.writer.tallies[text.split].require_enough()
        if not trains or self.config.keep_text:
            self._write_lines(text, verdicts)
        if text.alignments:
            self._write_alignments(text, verdicts)
        if text.weights:
            kept, kind = verdicts == Verdict.kept, self.config.weight_kind
            write_weights(self.writer.folder, text, self.pair, self.reading, kept, kind)

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
        for number, language in enumerate(self.writer.languages):
            kept = itertools.compress(text.side(number, self.reading), verdicts == Verdict.kept)
            lines = (line or "" for line in kept)  # a skipped line is empty
            write_text(self.writer.folder, text.split, language, lines, offsets=self.config.keep_text)

    def _write_alignments(self, text: ParallelText, verdicts: Verdicts) -> None:
        with going_on(f"{text.split}: numbering the tokens of alignments", self.config.progress):
            lost = write_alignments(self.writer.folder, text, self.pair, self.reading, verdicts == Verdict.kept)
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
    name = "pair_key" if leaked is Leaked.pairs else "source_key"
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *(tally.keys(name) for tally in tallies)]))

"""The splits of a corpus folder: encoded, filtered, written and counted."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nmt.config.preprocessing import Leaked, PreprocessConfig
from nmt.data.corpus import ragged_writer, sentence_files
from nmt.data.encoding import EncodedPairs, Keys, encode_all, token_type, write_alignments
from nmt.data.filters import Codes, PairFilter, Reason, TextRules
from nmt.data.finding_text import TRAIN
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import ParallelText
from nmt.data.report import SplitTally
from nmt.data.sharding import Facts, Shard, facts_file, facts_of
from nmt.data.stored_text import write_text
from nmt.data.text import Reading
from nmt.errors import DataError
from nmt.progress import ReportPairs, going_on
from nmt.storage.files import atomic_write

logger = logging.getLogger("nmt.data.preprocess")


def write_splits(
    folder: Path,
    texts: Sequence[ParallelText],
    counts: Mapping[str, int],
    pair: LanguagePair,
    config: PreprocessConfig,
    reading: Reading,
    progress: ReportPairs,
    shard: Shard | None = None,
) -> tuple[list[ParallelText], list[SplitTally]]:
    """What was written, and what was counted of it. ``counts``: pairs of each split. What must not stand in the training
    text has to be known before that is written, also to shards that do not hold it."""
    writer = _Writer(folder, pair, config, reading, progress, keeps_facts=shard is not None)
    written = list(texts) if shard is None else shard.of_texts(texts, counts)
    last = {TRAIN} if config.filters.drop_leaked is not None else set()
    found: dict[str, SplitTally] = {}
    for text in sorted(written, key=lambda text: text.split in last):
        leaks = None
        if text.split in last:
            elsewhere = [writer.seen(other) for other in texts if other.split not in (TRAIN, *found)]
            leaks = _keys_of([*found.values(), *elsewhere], config.filters.drop_leaked)
        count = counts[text.split] if text.block is None else text.block[1] - text.block[0]
        found[text.split] = writer.write(text, count, leaks)
    return written, [found[text.split] for text in written]


def _keys_of(tallies: Iterable[SplitTally], what: Leaked | None) -> Keys:
    every = [tally.keys(pairs=what is Leaked.pairs) for tally in tallies]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *every]))


class _Writer:
    def __init__(
        self,
        folder: Path,
        pair: LanguagePair,
        config: PreprocessConfig,
        reading: Reading,
        progress: ReportPairs,
        *,
        keeps_facts: bool,
    ) -> None:
        """``keeps_facts``: of a shard, for the merge."""
        self._folder, self._pair, self._config = folder, pair, config
        self._reading, self._progress, self._keeps_facts = reading, progress, keeps_facts

    def seen(self, text: ParallelText) -> SplitTally:
        """What stands in a split that is not written here."""
        tally = SplitTally(text.split)
        with contextlib.closing(self._encoded(text)) as encoded:
            for chunk in encoded:
                tally.keep(chunk)
        return tally

    def write(self, text: ParallelText, count: int, leaks: Keys | None) -> SplitTally:
        """A split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
        tally, codes = self._sentences(text, count, leaks)
        if (read := tally.counts["read"]) != count:
            raise DataError(f"{text.called(0)} changed while it was read: {count} lines at first, then {read}")
        if text.split == TRAIN:
            if self._config.keep_dropped is not None:
                self._keep_dropped(Path(self._config.keep_dropped), text, codes)
            if not self._keeps_facts:  # else the merge asks
                tally.require_enough()
        if text.split != TRAIN or self._config.keep_text:
            self._text(text, codes)
        if text.alignments:
            self._alignments(text, codes)
        return tally

    def _text(self, text: ParallelText, codes: Codes) -> None:
        for number, language in enumerate(self._languages(text)):
            kept = itertools.compress(text.side(number, self._reading), codes == Reason.kept)
            lines = (line or "" for line in kept)  # an empty line for one that is left out
            write_text(self._folder, text.split, language, lines, offsets=self._config.keep_text)

    def _languages(self, text: ParallelText) -> list[str]:
        return [self._pair.source_lang, self._pair.target_lang][: 1 + text.has_target]

    def _sentences(self, text: ParallelText, count: int, leaks: Keys | None) -> tuple[SplitTally, Codes]:
        """What was counted, and the verdict on each pair."""
        trains, tally = text.split == TRAIN, SplitTally(text.split, text.begin)
        tags = len(self._pair.before_sources())
        rules = PairFilter(self._config.filters, leaks, tags) if trains else None
        vocabularies = self._pair.source.vocabulary, self._pair.target.vocabulary
        judged, facts = list[Codes](), list[Facts]()
        with contextlib.ExitStack() as stack:
            appending = [
                stack.enter_context(
                    ragged_writer(*sentence_files(self._folder, text.split, language), token_type(vocabulary))
                )
                for language, vocabulary in zip(self._languages(text), vocabularies)
            ]
            for chunk in stack.enter_context(contextlib.closing(self._encoded(text))):
                codes = rules.judge(chunk) if rules else np.zeros(len(chunk.invalid), dtype=np.int8)
                kept = chunk.take(codes == Reason.kept)
                if self._keeps_facts:
                    first = text.begin + tally.counts["read"]
                    facts.append(facts_of(kept, first + np.flatnonzero(codes == Reason.kept)))
                tally.add(codes, kept)
                judged.append(codes)
                for append, side in zip(appending, (kept.source, kept.target)):
                    assert side is not None
                    append(side.tokens, side.lengths)
                self._progress(text.split, tally.counts["read"], count)
        if self._keeps_facts:
            np.save(facts_file(self._folder, text.split), np.concatenate(facts))
        return tally, np.concatenate(judged)

    def _encoded(self, text: ParallelText) -> Generator[EncodedPairs, None, None]:
        filters = self._config.filters
        return encode_all(
            text.pairs(self._reading),
            self._pair,
            only_source=not text.has_target,
            workers=self._config.workers,
            rules=TextRules(filters) if text.split == TRAIN else None,
            near=filters.near_duplicates,
        )

    def _alignments(self, text: ParallelText, codes: Codes) -> None:
        with going_on(f"{text.split}: numbering the pieces of alignments", self._config.progress):
            lost = write_alignments(self._folder, text, self._pair, self._reading, codes == Reason.kept)
        if lost:
            logger.warning(
                f"{text.split}: {lost:,} pairs lose their alignments: the tokenizer has pieces that are not part of one "
                f"word of theirs"
            )

    def _keep_dropped(self, path: Path, text: ParallelText, codes: Codes) -> None:
        """Of each pair that is dropped a line: the reason, its number, and both sides, between tabs."""
        with atomic_write(path) as plain, _packed(plain, path) as file:
            texts = {int(reason): reason.text for reason in Reason}
            dropped = zip(itertools.count(text.begin + 1), codes.tolist(), text.pairs(self._reading))
            for number, code, pair in dropped:
                if code != Reason.kept:
                    sides = ((side or "").replace("\t", " ") for side in pair)
                    file.write("\t".join([texts[code], str(number), *sides]).encode() + b"\n")


@contextlib.contextmanager
def _packed(file: BinaryIO, path: Path) -> Iterator[BinaryIO | gzip.GzipFile | io.BufferedIOBase]:
    """The file, or what packs into it if its name says so."""
    if path.suffix != ".gz":
        yield file
    else:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packing:
            yield packing

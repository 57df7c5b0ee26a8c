"""The splits of a corpus folder: encoded, filtered, written and counted."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nmt.config.preprocessing import Leaked, PreprocessConfig
from nmt.data.corpus import ragged_writer, sentence_files
from nmt.data.encoding import Keys, encode_all, token_type, write_alignments
from nmt.data.filters import Codes, PairFilter, Reason, TextRules
from nmt.data.finding_text import TRAIN
from nmt.data.language_pair import LanguagePair
from nmt.data.parallel_text import ParallelText
from nmt.data.report import SplitTally
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
) -> list[SplitTally]:
    """``counts``: pairs of each split. What must not stand in the training text has to be known before that is written."""
    writer = _Writer(folder, pair, config, reading, progress)
    last = {TRAIN} if config.filters.drop_leaked is not None else set()
    found: dict[str, SplitTally] = {}
    for text in sorted(texts, key=lambda text: text.split in last):
        leaks = _keys_of(found.values(), config.filters.drop_leaked) if text.split in last else None
        found[text.split] = writer.write(text, counts[text.split], leaks)
    return [found[text.split] for text in texts]


def _keys_of(tallies: Iterable[SplitTally], what: Leaked | None) -> Keys:
    every = [tally.keys(pairs=what is Leaked.pairs) for tally in tallies]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *every]))


class _Writer:
    def __init__(
        self, folder: Path, pair: LanguagePair, config: PreprocessConfig, reading: Reading, progress: ReportPairs
    ) -> None:
        self._folder, self._pair, self._config = folder, pair, config
        self._reading, self._progress = reading, progress

    def write(self, text: ParallelText, count: int, leaks: Keys | None) -> SplitTally:
        """A split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
        tally, codes = self._sentences(text, count, leaks)
        if (read := tally.counts["read"]) != count:
            raise DataError(f"{text.called(0)} changed while it was read: {count} lines at first, then {read}")
        if text.split == TRAIN:
            if self._config.keep_dropped is not None:
                self._keep_dropped(Path(self._config.keep_dropped), text, codes)
            tally.require_enough()
        else:
            for number, language in enumerate(self._languages(text)):
                with open(
                    self._folder / f"{text.split}.{language}.txt", "wb"
                ) as file:  # empty lines for what is left out
                    file.writelines((line or "").encode() + b"\n" for line in text.side(number, self._reading))
        if text.alignments:
            self._alignments(text, codes)
        return tally

    def _languages(self, text: ParallelText) -> list[str]:
        return [self._pair.source_lang, self._pair.target_lang][: 1 + text.has_target]

    def _sentences(self, text: ParallelText, count: int, leaks: Keys | None) -> tuple[SplitTally, Codes]:
        """What was counted, and the verdict on each pair."""
        filters, trains, tally, judged = (
            self._config.filters,
            text.split == TRAIN,
            SplitTally(text.split),
            list[Codes](),
        )
        rules = PairFilter(filters, leaks) if trains else None
        vocabularies = self._pair.source.vocabulary, self._pair.target.vocabulary
        with contextlib.ExitStack() as stack:
            appending = [
                stack.enter_context(
                    ragged_writer(*sentence_files(self._folder, text.split, language), token_type(vocabulary))
                )
                for language, vocabulary in zip(self._languages(text), vocabularies)
            ]
            encoded = encode_all(
                text.pairs(self._reading),
                self._pair,
                only_source=not text.has_target,
                workers=self._config.workers,
                rules=TextRules(filters) if trains else None,
                near=filters.near_duplicates,
            )
            for chunk in stack.enter_context(contextlib.closing(encoded)):
                judged.append(rules.judge(chunk) if rules else np.zeros(len(chunk.invalid), dtype=np.int8))
                kept = chunk.take(judged[-1] == Reason.kept)
                tally.add(judged[-1], kept)
                for append, side in zip(appending, (kept.source, kept.target)):
                    assert side is not None
                    append(side.tokens, side.lengths)
                self._progress(text.split, tally.counts["read"], count)
        return tally, np.concatenate(judged)

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
            dropped = zip(itertools.count(1), codes.tolist(), text.pairs(self._reading))
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

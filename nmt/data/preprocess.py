"""From parallel text to a corpus folder: read, learn pieces, encode, filter, write, report.

Text is streamed; what stays in memory is 17 bytes a pair (to count duplicates), 16 for its lengths, and with
``filters.drop_duplicates`` some 80 more. Everything is read once before anything is written, so a fault in the text
leaves no trace on the disk.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.config.checks import Rules, refuse, require_positive
from nmt.config.plain import to_plain
from nmt.config.sections import PreprocessConfig
from nmt.data.alignments import check_alignments, write_alignments
from nmt.data.corpus import FORMAT, KIND
from nmt.data.corpus_writer import SentenceWriter, check_destination, write_text
from nmt.data.encoding import Flags, encode_all
from nmt.data.filters import PairFilter, Reason
from nmt.data.language_pair import LanguagePair
from nmt.data.learning import language_pair, with_marks
from nmt.data.parallel_text import ParallelText, Reading, file_exists, find_file
from nmt.data.report import PreprocessReport, SplitTally
from nmt.errors import DataError, UsageError
from nmt.progress import going_on
from nmt.storage.files import new_folder, remove_leftovers_of, sha256, write_manifest

TRAIN = "train"

Progress = Callable[[str, int, int], None]  # split, pairs done, pairs in all

logger = logging.getLogger("nmt.data.preprocess")


def preprocess(config: PreprocessConfig, progress: Progress = lambda split, done, total: None) -> PreprocessReport:
    """Make the corpus folder ``config.destdir``; it appears when it is complete, or not at all."""
    _check(config)
    destination = Path(config.destdir)
    remove_leftovers_of(destination)
    check_destination(destination, config.overwrite)
    texts = _find_texts(config)
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    with going_on("reading the text", config.progress):
        facts = [_text_facts(path) for text in texts for path in _files_of(text)]  # the reader notices a later change
        counts = {text.split: text.count(reading) for text in texts}
        for text in texts:
            if text.alignments is not None:
                check_alignments(text, reading, counts[text.split])
    pair = language_pair(config, next((text for text in texts if text.split == TRAIN), None), reading)
    pair = with_marks(pair, config.pieces, texts[0], reading)  # the training text, if there is any
    with new_folder(destination, overwrite=config.overwrite) as folder:
        pair.save(folder / "tokenizer")
        encoder = _Encoder(folder, pair, config, reading, progress)
        tallies = [encoder.write(text, counts[text.split]) for text in texts]
        report = _report(config, pair, tallies)
        write_manifest(
            folder,
            KIND,
            FORMAT,
            splits=[text.split for text in texts],
            source_lang=pair.source_lang,
            target_lang=pair.target_lang,
            only_source=config.only_source,
            vocabularies=pair.digest(),
            report=to_plain(report),
            config=to_plain(config),
            text=facts,
        )
        check_destination(destination, config.overwrite)  # again: all this took a while
    return report


def _check(config: PreprocessConfig) -> None:
    require_positive("", workers=config.workers, max_line_bytes=config.max_line_bytes)
    refuse(*_contradictions(config))


def _contradictions(config: PreprocessConfig) -> Rules:
    languages, suffix = (config.source_lang, config.target_lang), config.align_suffix
    for flag, language in zip(("--source-lang", "--target-lang"), languages):
        yield (
            not language and not (config.only_source and flag == "--target-lang"),
            f"name the language of each side, the suffix of its files: {flag} is missing",
        )
        yield "/" in language, f"{flag} {language} is the suffix of file names; it cannot contain '/'"
    if suffix is not None:
        yield (
            not suffix or "/" in suffix or suffix in languages,
            f"--align-suffix {suffix}: give the suffix of files that hold word alignments, say align",
        )
        yield config.only_source, "--align-suffix and --only-source exclude each other: an alignment needs both sides"
    yield (
        config.source_lang and config.source_lang == config.target_lang,
        f"source and target language are both '{config.source_lang}'; give the files other suffixes",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative (--seed)"


def _find_texts(config: PreprocessConfig) -> list[ParallelText]:
    """The files of every split, in fairseq's naming: train, valid, valid1, ..., test, test1, ..."""
    prefixes = [(TRAIN, config.trainpref)] if config.trainpref else []
    for split, given in (("valid", config.validpref), ("test", config.testpref)):
        several = [prefix.strip() for prefix in (given or "").split(",") if prefix.strip()]
        prefixes += [(f"{split}{number or ''}", prefix) for number, prefix in enumerate(several)]
    if not prefixes:
        raise UsageError("no text is given: set --trainpref, --validpref or --testpref")
    texts = []
    for split, prefix in prefixes:
        source = find_file(prefix, config.source_lang)
        target = None if config.only_source else find_file(prefix, config.target_lang)
        if target is not None and source.samefile(target):
            logger.warning(f"{split}: {source} and {target} are the same file")
        texts.append(ParallelText(split, source, target, _find_alignments(split, prefix, config.align_suffix)))
    return texts


def _find_alignments(split: str, prefix: str, suffix: str | None) -> Path | None:
    """Training is what alignments are for; other splits may have them."""
    if suffix is None or not (split == TRAIN or file_exists(prefix, suffix)):
        return None
    return find_file(prefix, suffix)


def _files_of(text: ParallelText) -> tuple[Path, ...]:
    return text.paths() if text.alignments is None else (*text.paths(), text.alignments)


@dataclass(frozen=True)
class _Encoder:
    """Writes the splits of one corpus."""

    folder: Path
    pair: LanguagePair
    config: PreprocessConfig
    reading: Reading
    progress: Progress

    def write(self, text: ParallelText, count: int) -> SplitTally:
        """Encode one split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
        kept: list[Flags] = []
        tally = self._encode(text, count, kept)
        if tally.read != count:
            raise DataError(f"{text.source} changed while it was read: {count} lines at first, then {tally.read}")
        if text.split == TRAIN:
            tally.require_enough()
        else:
            for path, language in zip(text.paths(), (self.pair.source_lang, self.pair.target_lang)):
                write_text(self.folder / f"{text.split}.{language}.txt", self.reading.lines(path, quiet=True))
        if text.alignments is not None:
            with going_on(f"{text.split}: numbering the pieces of alignments", self.config.progress):
                lost = write_alignments(self.folder, text, self.pair, self.reading, np.concatenate(kept))
            if lost:
                logger.warning(
                    f"{text.split}: {lost:,} pairs lose their alignments: the tokenizer has pieces that are not part of one "
                    f"word of theirs"
                )
        return tally

    def _encode(self, text: ParallelText, count: int, flags: list[Flags]) -> SplitTally:
        """``flags`` receives which lines are kept, chunk by chunk."""
        rules = PairFilter(self.config.filters) if text.split == TRAIN else None
        tally = SplitTally(text.split)
        only_source, workers = text.target is None, self.config.workers
        with contextlib.ExitStack() as stack:
            sides = [(self.pair.source_lang, self.pair.source), (self.pair.target_lang, self.pair.target)]
            writers = [
                stack.enter_context(SentenceWriter(self.folder, f"{text.split}.{language}", tokenizer.vocabulary))
                for language, tokenizer in (sides[:1] if only_source else sides)
            ]
            pairs = encode_all(text.pairs(self.reading), self.pair, only_source=only_source, workers=workers)
            for chunk in stack.enter_context(contextlib.closing(pairs)):
                codes = rules.judge(chunk) if rules else np.zeros(len(chunk.invalid), dtype=np.int8)
                flags.append(codes == Reason.kept)
                kept = chunk.take(flags[-1])
                tally.add(codes, kept)
                for writer, side in zip(writers, (kept.source, kept.target)):
                    assert side is not None
                    writer.write(side)
                self.progress(text.split, tally.read, count)
        return tally


def _report(config: PreprocessConfig, pair: LanguagePair, tallies: list[SplitTally]) -> PreprocessReport:
    return PreprocessReport(
        folder=config.destdir,
        source_entries=len(pair.source.vocabulary),
        target_entries=len(pair.target.vocabulary),
        shared=pair.shared,
        splits=[tally.report(pair.source_lang, pair.target_lang) for tally in tallies],
        overlaps=[later.overlap(earlier) for earlier, later in itertools.combinations(tallies, 2)],
    )


def _text_facts(path: Path) -> dict[str, str | int]:
    """What tells later whether the text is still the one that was read."""
    now = path.stat()
    return {
        "path": str(path.absolute()),
        "bytes": now.st_size,
        "modified_ns": now.st_mtime_ns,
        "sha256": sha256(path),
    }

"""From parallel text to a corpus folder: read, learn pieces or take those that are given, encode, filter, write, report.

Text is streamed; what stays in memory is 17 bytes a pair (to count duplicates), 16 for its lengths, and with
``filters.drop_duplicates`` some 80 more. Everything is read once before anything is written, so a fault in the text
leaves no trace on the disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from pathlib import Path

import numpy as np

from nmt.config.checks import Rules, refuse, require_positive
from nmt.config.choices import PieceMarks
from nmt.config.plain import to_plain
from nmt.config.sections import PreprocessConfig
from nmt.data.corpus import FORMAT, KIND, ragged_writer, sentence_files
from nmt.data.encoding import check_alignments, encode_all, token_type, write_alignments
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.parallel_text import ParallelText, file_exists, find_file
from nmt.data.report import PairFilter, PreprocessReport, Reason, SplitTally
from nmt.data.stored_text import write_text
from nmt.data.text import SHOWN, Reading, recognised
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers, trainable
from nmt.data.vocabulary import Flags
from nmt.errors import DataError, UsageError
from nmt.progress import ReportPairs, going_on, unseen
from nmt.storage.files import check_destination, new_folder, sha256, write_manifest
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.lock import remove_leftovers_of

TRAIN = "train"


logger = logging.getLogger("nmt.data.preprocess")


def preprocess(config: PreprocessConfig, progress: ReportPairs = unseen) -> PreprocessReport:
    """Make the corpus folder ``config.destdir``; it appears when it is complete, or not at all."""
    require_positive("", workers=config.workers, max_line_bytes=config.max_line_bytes)
    refuse(*_contradictions(config))
    destination = Path(config.destdir)
    remove_leftovers_of(destination)
    check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    texts = _find_texts(config)
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    with going_on("reading the text", config.progress):
        facts = [text_facts(path) for text in texts for path in text.files()]  # the reader notices a later change
        counts = {text.split: text.count(reading) for text in texts}
        for text in texts:
            if text.alignments is not None:
                check_alignments(text, reading, counts[text.split])
    pair = language_pair(config, next((text for text in texts if text.split == TRAIN), None), reading)
    pair = with_marks(pair, config.pieces, texts[0], reading)  # the training text, if there is any
    with new_folder(destination, overwrite=config.overwrite) as folder:
        pair.save(folder / "tokenizer")
        tallies = [_write_split(folder, text, counts[text.split], pair, config, reading, progress) for text in texts]
        languages = (pair.source_lang,) if config.only_source else (pair.source_lang, pair.target_lang)
        report = PreprocessReport(
            folder=config.destdir,
            source_entries=len(pair.source.vocabulary),
            target_entries=len(pair.target.vocabulary),
            shared=pair.shared,
            splits=[tally.report(*languages) for tally in tallies],
            overlaps=[later.overlap(earlier) for earlier, later in itertools.combinations(tallies, 2)],
        )
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
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)  # again: all this took a while
    return report


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
        suffix, alignments = config.align_suffix, None
        if suffix is not None and (split == TRAIN or file_exists(prefix, suffix)):  # they are for training above all
            alignments = find_file(prefix, suffix)
        texts.append(ParallelText(split, source, target, alignments))
    return texts


def _write_split(
    folder: Path,
    text: ParallelText,
    count: int,
    pair: LanguagePair,
    config: PreprocessConfig,
    reading: Reading,
    progress: ReportPairs,
) -> SplitTally:
    """Encode and write one split of ``count`` lines. Only training text is filtered: elsewhere every line counts."""
    tally, kept = SplitTally(text.split), list[Flags]()
    rules = PairFilter(config.filters) if text.split == TRAIN else None
    languages = ((pair.source_lang, pair.source), (pair.target_lang, pair.target))[: len(text.paths())]
    with contextlib.ExitStack() as stack:
        appending = [
            stack.enter_context(
                ragged_writer(*sentence_files(folder, text.split, language), token_type(tokenizer.vocabulary))
            )
            for language, tokenizer in languages
        ]
        encoded = encode_all(text.pairs(reading), pair, only_source=text.target is None, workers=config.workers)
        for chunk in stack.enter_context(contextlib.closing(encoded)):
            codes = rules.judge(chunk) if rules else np.zeros(len(chunk.invalid), dtype=np.int8)
            kept.append(codes == Reason.kept)
            remaining = chunk.take(kept[-1])
            tally.add(codes, remaining)
            for append, side in zip(appending, (remaining.source, remaining.target)):
                assert side is not None
                append(side.tokens, side.lengths)
            progress(text.split, tally.counts["read"], count)
    if (read := tally.counts["read"]) != count:
        raise DataError(f"{text.source} changed while it was read: {count} lines at first, then {read}")
    if text.split == TRAIN:
        tally.require_enough()
    if text.split != TRAIN or config.keep_text:
        for path, (language, _) in zip(text.paths(), languages):
            lines = itertools.compress(reading.lines(path, quiet=True), np.concatenate(kept))
            whole = (line or "" for line in lines)  # an empty line for one that is left out
            write_text(folder, text.split, language, whole, offsets=config.keep_text)
    if text.alignments is not None:
        with going_on(f"{text.split}: numbering the pieces of alignments", config.progress):
            lost = write_alignments(folder, text, pair, reading, np.concatenate(kept))
        if lost:
            logger.warning(
                f"{text.split}: {lost:,} pairs lose their alignments: the tokenizer has pieces that are not part of one "
                f"word of theirs"
            )
    return tally


def text_facts(path: Path) -> dict[str, str | int]:
    """What tells later whether the text is still the one that was read."""
    now = path.stat()
    return {
        "path": str(path.absolute()),
        "bytes": now.st_size,
        "modified_ns": now.st_mtime_ns,
        "sha256": sha256(path),
    }


def language_pair(config: PreprocessConfig, text: ParallelText | None, reading: Reading) -> LanguagePair:
    """Both tokenizers; what is not given is learned from ``text``, the training split."""
    given = [Path(named) for named in (config.srcdict, config.tgtdict) if named]
    places = {(find_pair(path) or path).resolve() for path in given}  # ``A``, ``A/`` and ``A/tokenizer`` are one pair
    if config.joined_dictionary and len(places) > 1:
        raise UsageError("--joined-dictionary has one vocabulary: give --srcdict or --tgtdict, not two different ones")
    languages = config.source_lang, config.target_lang
    stored = find_pair(given[0]) if given and len(places) == 1 else None
    known = None if stored is None else LanguagePair.load(stored)
    # One vocabulary with a tokenizer for each side: either option names both.
    both = config.joined_dictionary and known is not None and known.shared and not known.one_tokenizer
    srcdict, tgtdict = (str(stored), str(stored)) if both else (config.srcdict, config.tgtdict)
    source, target = _given(config, srcdict, "source"), _given(config, tgtdict, "target")
    if config.joined_dictionary and not both:
        joint = source or target or _learned(config, text, reading, "source", "target")
        return LanguagePair(*languages, joint, joint, shared=True)
    if target is None and config.only_source:
        return _source_alone(config, source or _learned(config, text, reading, "source"))
    source = source or _learned(config, text, reading, "source")
    shared = (both or len(given) == 2) and known is not None and known.shared
    one = shared and known is not None and known.one_tokenizer
    target = source if one else target or _learned(config, text, reading, "target")
    return LanguagePair(*languages, source, target, shared)


def with_marks(pair: LanguagePair, pieces: PieceMarks | None, text: ParallelText, reading: Reading) -> LanguagePair:
    """The pair that joins what was cut before: with the marks that are given, those that ``text`` shows, or those that
    given tokenizers have. The user is told of each file that looks cut."""
    source = _marks_of(text.source, pair.source, pieces, reading)
    target = source if text.target is None else _marks_of(text.target, pair.target, pieces, reading)
    if pair.one_tokenizer:
        joint = pair.target.joining(target)  # what is written decides: raw text would lose its spaces
        return dataclasses.replace(pair, source=joint, target=joint)
    both = pair.target if text.target is None else pair.target.joining(target)
    return dataclasses.replace(pair, source=pair.source.joining(source), target=both)


def _marks_of(path: Path, tokenizer: Tokenizer, pieces: PieceMarks | None, reading: Reading) -> PieceMarks:
    marks, lines, of = recognised(reading.lines(path, quiet=True)) if pieces is None else (pieces, 0, 0)
    if marks is PieceMarks.none:
        return tokenizer.marks if pieces is None else marks
    seen = f" ({SHOWN[marks]} in {lines:,} of {of:,} lines)" if of else ""
    where = f"{path} is cut into pieces of {marks.value} already{seen}"
    if not tokenizer.keeps_pieces:
        logger.warning(
            f"{where}, and the tokenizer cuts it again; give raw text, or keep these pieces with tokenizer=words"
        )
    elif of:
        logger.warning(
            f"{where}: tokenizer=words keeps them, and translations and scores have them joined to words "
            f"(--pieces none leaves them apart)"
        )
    return marks


def _source_alone(config: PreprocessConfig, source: Tokenizer) -> LanguagePair:
    """A source to translate: the target side is the other one of the pair that the given source belongs to, if any."""
    if config.srcdict and (folder := find_pair(Path(config.srcdict))):
        known = LanguagePair.load(folder)
        turned = config.source_lang == known.target_lang
        target, target_lang = (known.source, known.source_lang) if turned else (known.target, known.target_lang)
        target = source if known.one_tokenizer else target
        return LanguagePair(config.source_lang, config.target_lang or target_lang, source, target, known.shared)
    return LanguagePair(config.source_lang, config.target_lang, source, source, shared=True)


def _given(config: PreprocessConfig, named: str | None, side: str) -> Tokenizer | None:
    """The tokenizer of a model file, a list of pieces, or a folder that holds a pair; None if none is named. Of a pair
    the side of the same language is taken, so that a corpus of the other direction serves as well."""
    if not named:
        return None
    folder = find_pair(Path(named))
    if folder is None:
        if (found := corpus_of_fairseq(Path(named))) is not None:
            raise DataError(f"{named} is {found}")
        return _builder(config).given(Path(named))
    pair = LanguagePair.load(folder)
    if config.joined_dictionary and pair.source.vocabulary != pair.target.vocabulary:
        raise UsageError(
            f"{named} holds two vocabularies, and --joined-dictionary wants one for both languages; leave one of "
            f"the two options out"
        )
    by_language = {pair.source_lang: pair.source, pair.target_lang: pair.target}
    language, by_side = (config.source_lang, pair.source) if side == "source" else (config.target_lang, pair.target)
    return by_language.get(language, by_side)


def _learned(config: PreprocessConfig, text: ParallelText | None, reading: Reading, *sides: str) -> Tokenizer:
    """A tokenizer trained on one or both sides of the training split."""
    if text is None:
        raise UsageError(
            "pieces are learned from the training split only: give --trainpref, or existing vocabularies with "
            "--srcdict and --tgtdict (files, or a corpus or run folder)"
        )
    files = {"source": text.source, "target": text.target}
    paths = [path for side in sides if (path := files[side]) is not None]
    names = " and ".join(str(path) for path in paths)
    builder = _builder(config)
    logger.info(f"learning pieces from {names}")
    try:
        with going_on("learning pieces", config.progress):
            every = itertools.chain.from_iterable(reading.lines(path, quiet=True) for path in paths)
            return builder.train((line for line in every if line is not None and line.strip()), config.seed)
    except UsageError as error:
        raise UsageError(f"{names}: {error}") from error


def _builder(config: PreprocessConfig) -> TokenizerBuilder:
    if config.tokenizer is None:
        raise UsageError(f"choose how text is cut into pieces: tokenizer={'|'.join(trainable())}")
    return tokenizers.build(config.tokenizer)

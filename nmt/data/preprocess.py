"""From parallel text to a corpus folder: read, learn pieces or take those that are given, encode, filter, write, report.

Text is streamed; what stays in memory is 17 bytes a pair (to count duplicates), 16 for its lengths, and with
``filters.drop_duplicates`` some 80 more. Everything is read once before anything is written, so a fault in the text
leaves no trace on the disk.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nmt.config.checks import Rules, refuse, require_positive
from nmt.config.choices import PieceMarks, Segmentation
from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data import corpus_page
from nmt.data.corpus import KIND
from nmt.data.encoding import check_alignments
from nmt.data.filters import TextRules
from nmt.data.finding_text import TRAIN, find_texts, kept_standard_input
from nmt.data.given_pieces import cut_pair
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.merging import merge
from nmt.data.parallel_text import ParallelText
from nmt.data.report import PreprocessReport
from nmt.data.sealing import seal
from nmt.data.sharding import Shard, write_tallies
from nmt.data.tags import piece_of
from nmt.data.text import SHOWN, Reading, recognised
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers, trainable
from nmt.data.writing import write_splits
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.progress import ReportPairs, going_on, unseen
from nmt.storage.files import check_destination, check_new_file, new_folder, sha256
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.lock import remove_leftovers_of

logger = logging.getLogger("nmt.data.preprocess")


def preprocess(config: PreprocessConfig, progress: ReportPairs = unseen) -> PreprocessReport:
    """Make the corpus folder ``config.destdir``; it appears when it is complete, or not at all."""
    require_positive("", workers=config.workers, max_line_bytes=config.max_line_bytes)
    if config.merge is None:
        refuse(*_contradictions(config))
        TextRules(config.filters)  # a script that Unicode has not is refused before the text is read
    else:
        refuse(*_beside_a_merge(config))
    shard = None if config.shard is None else Shard.parse(config.shard)
    destination = Path(config.destdir) if shard is None else shard.folder(Path(config.destdir))
    remove_leftovers_of(destination)
    check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    if config.merge is not None:
        return merge(config, progress)
    with kept_standard_input(config) as standard_input:
        texts = find_texts(config, standard_input)
        named = dict.fromkeys(path for text in texts for path in text.files if path != standard_input)
        if config.keep_dropped is not None:
            _check_dropped(Path(config.keep_dropped), destination, named, config)
        return _make(config, shard, destination, texts, named, progress)


def _make(
    config: PreprocessConfig,
    shard: Shard | None,
    destination: Path,
    texts: list[ParallelText],
    named: Iterable[Path],
    progress: ReportPairs,
) -> PreprocessReport:
    """``named``: the files that are still there later."""
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    with going_on("reading the text", config.progress):
        facts = [text_facts(path) for path in named]  # the reader notices a later change
        counts = {text.split: text.count(reading) for text in texts}
        for text in texts:
            for path, part in zip(text.alignments, text.parts):
                check_alignments(path, part, reading)
    training = next((text for text in texts if text.split == TRAIN), None)
    pair = language_pair(config, training, reading, counts.get(TRAIN, 0))
    pair = with_marks(_with_tag(pair, config), config.pieces, texts[0], reading)  # the training text, if there is any
    with new_folder(destination, overwrite=config.overwrite) as folder:
        pair.save(folder / "tokenizer")
        written, tallies = write_splits(folder, texts, counts, pair, config, reading, progress, shard)
        examples = {text.split: corpus_page.examples_of(text, tally, reading) for text, tally in zip(written, tallies)}
        if shard is not None:
            write_tallies(folder, shard, tallies, examples)
        given = dataclasses.replace(config, destdir=str(destination))
        report = seal(folder, pair, tallies, examples, facts, to_plain(given))
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)  # again: all this took a while
    return report


def _check_dropped(dropped: Path, destination: Path, texts: Iterable[Path], config: PreprocessConfig) -> None:
    """It takes the place of nothing that is needed. The shards of one command must not share it."""
    real = Path(os.path.realpath(dropped))
    if Path(os.path.realpath(destination)) in real.parents:
        raise OutputError(f"--keep-dropped {dropped} lies in the corpus folder; choose a file outside of {destination}")
    if any(os.path.realpath(text) == str(real) for text in texts):
        raise OutputError(f"--keep-dropped {dropped} is a file of the text itself; choose another")
    if config.shard is not None and dropped.exists():
        raise OutputError(
            f"{dropped} exists already, and shards must not share it; delete it, or choose another --keep-dropped"
        )
    check_new_file(dropped, overwrite=config.overwrite, option="--keep-dropped")


def _beside_a_merge(config: PreprocessConfig) -> Rules:
    """What says something of text, of which none is read."""
    for name in ("trainpref", "validpref", "testpref", "tsv", "jsonl", "keep_dropped", "tag"):
        flag = f"--{name.replace('_', '-')}"
        yield getattr(config, name) is not None, f"--merge joins shards and reads no text; leave {flag} out"
    yield config.shard is not None, "--shard and --merge exclude each other: shards are made first, then joined"


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
    yield (
        len(config.columns) not in (2, 2 - config.only_source) or min(config.columns, default=0) < 1,
        f"columns={config.columns} must be two numbers from 1 on, of source and target (--columns 1,2)",
    )
    yield (
        len(config.fields) not in (0, 2, 2 - config.only_source),
        f"fields={config.fields} must be two names, of source and target (--fields en,de)",
    )
    for name, value in (("bpe_model", config.bpe_model), ("target_bpe_model", config.target_bpe_model)):
        flag = f"--{name.replace('_', '-')}"
        yield (
            value is not None and config.bpe is Segmentation.none,
            f"say what {flag} {value} is: --bpe sentencepiece, subword_nmt or fastbpe",
        )
    yield (
        config.moses and config.bpe is Segmentation.none,
        "--moses joins the words of text that --bpe subword_nmt or fastbpe has cut; say which, or leave it out",
    )
    yield (
        config.shard is not None and not (config.trainpref or config.tsv or config.jsonl),
        f"--shard {config.shard} is a part of the training text, and there is none: give --trainpref",
    )
    given = bool(config.srcdict and (config.tgtdict or config.joined_dictionary or config.only_source))
    yield (
        config.shard is not None and not given,
        "--shard prepares a part of the text with a tokenizer that is given, so that all parts have the same: --srcdict and "
        "--tgtdict (files, or a corpus or run folder)",
    )
    yield (
        config.tag is not None and (not config.tag or len(config.tag.split()) != 1),
        f"--tag {config.tag!r} must be one word, such as de",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative (--seed)"


def text_facts(path: Path) -> dict[str, str | int]:
    """What tells later whether the text is still the one that was read."""
    now = path.stat()
    try:
        digest = sha256(path)
    except OSError as error:
        reason = f"{error.strerror} (working directory: {Path.cwd()})"
        raise MissingInputError(f"cannot read {path}: {reason}") from error
    return {
        "path": str(path.absolute()),
        "bytes": now.st_size,
        "modified_ns": now.st_mtime_ns,
        "sha256": digest,
    }


def language_pair(config: PreprocessConfig, text: ParallelText | None, reading: Reading, count: int) -> LanguagePair:
    """Both tokenizers; what is not given is learned from ``text``, the training split of ``count`` pairs."""
    if config.bpe is not Segmentation.none:
        return cut_pair(config, text, reading)
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
    learned = functools.partial(_learned, config, text, reading, count)
    if config.joined_dictionary and not both:
        joint = source or target or learned("source", "target")
        return LanguagePair(*languages, joint, joint, shared=True)
    if target is None and config.only_source:
        return _source_alone(config, source or learned("source"))
    source = source or learned("source")
    shared = (both or len(given) == 2) and known is not None and known.shared
    one = shared and known is not None and known.one_tokenizer
    target = source if one else target or learned("target")
    return LanguagePair(*languages, source, target, shared)


def _with_tag(pair: LanguagePair, config: PreprocessConfig) -> LanguagePair:
    """The pair with the language tag that is asked for, which its source vocabulary must have."""
    if config.tag is None:
        return pair
    other = dataclasses.replace(pair, tag=config.tag)
    try:
        other.before_sources()
    except UsageError as error:
        raise UsageError(
            f"{error}; pieces that are learned (tokenizer=bpe or unigram) get one, and those of more tags with "
            f"--user-defined-symbols '{piece_of(config.tag)},{piece_of('fr')}' (--tag {config.tag})"
        ) from None
    return other


def with_marks(pair: LanguagePair, pieces: PieceMarks | None, text: ParallelText, reading: Reading) -> LanguagePair:
    """The pair that joins what was cut before: with the marks that are given, those that ``text`` shows, or those that
    given tokenizers have. The user is told of each file that looks cut."""
    source = _marks_of(text, 0, pair.source, pieces, reading)
    target = _marks_of(text, 1, pair.target, pieces, reading) if text.has_target else source
    if pair.one_tokenizer:
        joint = pair.target.joining(target)  # what is written decides: raw text would lose its spaces
        return dataclasses.replace(pair, source=joint, target=joint)
    both = pair.target.joining(target) if text.has_target else pair.target
    return dataclasses.replace(pair, source=pair.source.joining(source), target=both)


def _marks_of(
    text: ParallelText, side: int, tokenizer: Tokenizer, pieces: PieceMarks | None, reading: Reading
) -> PieceMarks:
    """Of the source (0) or the target (1)."""
    marks, lines, of = recognised(text.side(side, reading)) if pieces is None else (pieces, 0, 0)
    if marks is PieceMarks.none:
        return tokenizer.marks if pieces is None else marks
    seen = f" ({SHOWN[marks]} in {lines:,} of {of:,} lines)" if of else ""
    where = f"{text.called(side)} is cut into pieces of {marks.value} already{seen}"
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


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Those of some sides of a text that are not empty, which are no more than ``most``."""

    text: ParallelText
    sides: Sequence[int]
    reading: Reading
    most: int

    def __iter__(self) -> Iterator[str]:
        for side in self.sides:
            yield from (line for line in self.text.side(side, self.reading) if line is not None and line.strip())

    def __length_hint__(self) -> int:
        return self.most


def _learned(
    config: PreprocessConfig, text: ParallelText | None, reading: Reading, count: int, *sides: str
) -> Tokenizer:
    """A tokenizer trained on one or both sides of the training split."""
    if text is None:
        raise UsageError(
            "pieces are learned from the training split only: give --trainpref, or existing vocabularies with "
            "--srcdict and --tgtdict (files, or a corpus or run folder)"
        )
    numbers = [("source", "target").index(side) for side in sides if text.has_target or side == "source"]
    names = " and ".join(dict.fromkeys(text.called(number) for number in numbers))
    builder = _builder(config)
    logger.info(f"learning pieces from {names}")
    try:
        with going_on("learning pieces", config.progress):
            return builder.train(_Lines(text, numbers, reading, count * len(numbers)), config.seed)
    except UsageError as error:
        raise UsageError(f"{names}: {error}") from error


def _builder(config: PreprocessConfig) -> TokenizerBuilder:
    if config.tokenizer is None:
        raise UsageError(f"choose how text is cut into pieces: tokenizer={'|'.join(trainable())}")
    given, symbols = config.tokenizer, getattr(config.tokenizer, "user_defined_symbols", None)
    if config.tag is not None and symbols is not None and piece_of(config.tag) not in symbols:
        given = dataclasses.replace(given, user_defined_symbols=[*symbols, piece_of(config.tag)])
    return tokenizers.build(given)

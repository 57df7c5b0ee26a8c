"""Where the tokenizers of a corpus come from: files that are given, or the training split; and whether its text was cut
before."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from pathlib import Path

from nmt.config.choices import PieceMarks
from nmt.config.sections import PreprocessConfig
from nmt.data.cut_text import SHOWN, Recognised, recognised
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.parallel_text import ParallelText, Reading
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers
from nmt.errors import DataError, UsageError
from nmt.progress import going_on
from nmt.storage.foreign import corpus_of_fairseq

logger = logging.getLogger("nmt.data.learning")


def language_pair(config: PreprocessConfig, text: ParallelText | None, reading: Reading) -> LanguagePair:
    """Both tokenizers; what is not given is learned from ``text``, the training split."""
    same = _place(config.srcdict) == _place(config.tgtdict)
    if config.joined_dictionary and config.srcdict and config.tgtdict and not same:
        raise UsageError("--joined-dictionary has one vocabulary: give --srcdict or --tgtdict, not two different ones")
    source = _given(config, config.srcdict, "source")
    target = _given(config, config.tgtdict, "target")
    if config.joined_dictionary:
        joint = source or target or _learned(config, text, reading, "source", "target")
        return LanguagePair(config.source_lang, config.target_lang, joint, joint, shared=True)
    if target is None and config.only_source:
        return _source_alone(config, source or _learned(config, text, reading, "source"))
    source = source or _learned(config, text, reading, "source")
    if config.srcdict and same and _stored_as_shared(config.srcdict):
        return LanguagePair(config.source_lang, config.target_lang, source, source, shared=True)
    target = target or _learned(config, text, reading, "target")
    return LanguagePair(config.source_lang, config.target_lang, source, target, shared=False)


def with_marks(pair: LanguagePair, pieces: PieceMarks | None, text: ParallelText, reading: Reading) -> LanguagePair:
    """The pair that joins what was cut before: with the marks that are given, those that ``text`` shows, or those that
    given tokenizers have. The user is told of each file that looks cut."""
    source = _marks_of(text.source, pair.source, pieces, reading)
    target = source if text.target is None else _marks_of(text.target, pair.target, pieces, reading)
    if pair.shared:
        joint = pair.target.joining(target)  # what is written decides: raw text would lose its spaces
        return dataclasses.replace(pair, source=joint, target=joint)
    both = pair.target if text.target is None else pair.target.joining(target)
    return dataclasses.replace(pair, source=pair.source.joining(source), target=both)


def _marks_of(path: Path, tokenizer: Tokenizer, pieces: PieceMarks | None, reading: Reading) -> PieceMarks:
    found = recognised(reading.lines(path, quiet=True)) if pieces is None else Recognised(pieces)
    if found.marks is PieceMarks.none:
        return tokenizer.marks if pieces is None else found.marks
    seen = f" ({SHOWN[found.marks]} in {found.lines:,} of {found.of:,} lines)" if found.of else ""
    where = f"{path} is cut into pieces of {found.marks.value} already{seen}"
    if not tokenizer.keeps_pieces:
        logger.warning(
            f"{where}, and the tokenizer cuts it again; give raw text, or keep these pieces with tokenizer=words"
        )
    elif found.of:
        logger.warning(
            f"{where}: tokenizer=words keeps them, and translations and scores have them joined to words "
            f"(--pieces none leaves them apart)"
        )
    return found.marks


def _source_alone(config: PreprocessConfig, source: Tokenizer) -> LanguagePair:
    """A source to translate: the target side is the other one of the pair that the given source belongs to, if any."""
    if config.srcdict and (folder := find_pair(Path(config.srcdict))):
        known = LanguagePair.load(folder)
        turned = config.source_lang == known.target_lang
        target, target_lang = (known.source, known.source_lang) if turned else (known.target, known.target_lang)
        return LanguagePair(config.source_lang, config.target_lang or target_lang, source, target, known.shared)
    return LanguagePair(config.source_lang, config.target_lang, source, source, shared=True)


def _place(named: str | None) -> Path | None:
    """What a name leads to: ``A``, ``A/`` and ``A/tokenizer`` are one pair."""
    return (find_pair(Path(named)) or Path(named)).resolve() if named else None


def _stored_as_shared(named: str) -> bool:
    folder = find_pair(Path(named))
    return folder is not None and LanguagePair.load(folder).shared


def _given(config: PreprocessConfig, named: str | None, side: str) -> Tokenizer | None:
    """The tokenizer of a model file, a list of pieces, or a folder that holds a pair; None if none is named.

    Of a pair the side of the same language is taken, so that a corpus of the other direction serves as well.
    """
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
        raise UsageError(f"choose how text is cut into pieces: tokenizer={'|'.join(tokenizers.names())}")
    return tokenizers.build(config.tokenizer)

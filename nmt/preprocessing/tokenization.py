"""The tokenizers of a corpus: existing ones, or learned from the training text.

Text that another toolkit's segmenter is to cut needs a list of its tokens: an existing one, or counted in the training text.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config.choices import PieceMarks, Segmentation, Sides
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.imported.tokenizers import tokenizer_of
from nmt.data.imported.vocabularies import FAIRSEQ_SPECIALS, read_fairseq_dictionary, read_marian_vocabulary
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.languages import LanguageTokens, SourceToken, piece_of
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.data.text.piece_marks import SHOWN, recognized
from nmt.data.tokenizers import Tokenizer, TokenizerBuilder, tokenizers, trainable
from nmt.data.vocabulary import SPECIALS
from nmt.errors import DataError, UsageError
from nmt.progress import going_on
from nmt.storage.foreign import corpus_of_fairseq, is_dictionary_of_fairseq

logger = logging.getLogger("nmt.preprocessing")


@dataclass(frozen=True)
class TrainingText:
    """The lines of the training split that are not blank, from which tokenizers are learned. A trainer may ask for an upper
    bound of their number."""

    text: ParallelText
    reading: Reading
    count: int  # pairs
    sides: Sequence[int] = (0, 1)

    def __iter__(self) -> Iterator[str]:
        for side in self.sides:
            yield from (line for line in self.text.side(side, self.reading) if line is not None and line.strip())

    def __length_hint__(self) -> int:
        return len(self.sides) * self.count


def language_pair(
    config: PreprocessConfig, training: TrainingText | None, existing: LanguagePair | None = None
) -> LanguagePair:
    """Return both tokenizers: ``existing``, or those that the options name. Others are learned from ``training``."""
    learn = _pair if config.bpe is Segmentation.none else segmented_pair
    pair = existing or learn(config, training)
    if config.tag is None:
        return pair
    try:
        tagged = _tagged(pair, config.tag)
        assert tagged.languages is not None
        return dataclasses.replace(tagged, languages=placed(tagged.languages, config.tag_side)).checked()
    except UsageError as error:
        if pair.languages is not None:
            raise
        raise UsageError(
            f"{error}; a learned vocabulary (tokenizer=bpe or unigram) gets it with "
            f"--user-defined-symbols '{piece_of(config.tag)}' (--tag {config.tag})"
        ) from None


def placed(languages: LanguageTokens, side: Sides | None) -> LanguageTokens:
    """Return the tokens with the place of the target language's token: at the side(s) of ``--tag-side``; None: unchanged."""
    if side is None:
        return languages
    source = SourceToken.none if side is Sides.target else SourceToken.target
    return dataclasses.replace(languages, source=source, target=side is not Sides.source)


def _tagged(pair: LanguagePair, tag: str) -> LanguagePair:
    """Return the pair with the language ``tag`` as its target, by the tokens of its model, or of its vocabulary."""
    code = None if pair.languages is None else pair.languages.code(tag)
    if pair.languages is None:
        return pair.with_tag(tag)
    if code is None:
        raise pair.languages.refusal(tag)
    tokens = {**pair.languages.tokens, pair.target_lang: pair.languages.tokens[code]}
    return dataclasses.replace(pair, languages=dataclasses.replace(pair.languages, tokens=tokens))


def _pair(config: PreprocessConfig, training: TrainingText | None) -> LanguagePair:
    """Return both tokenizers, with the tokens of languages of the model that they belong to."""
    pair, languages = _sides_of_pair(config, training)
    if languages is None or config.only_source:
        return pair
    unknown = [code for code in (pair.source_lang, pair.target_lang) if code not in languages.tokens]
    if not unknown:
        return dataclasses.replace(pair, languages=dataclasses.replace(languages, trained=(), zero_shot=()))
    if config.pairs and piece_of(unknown[0]) not in pair.source.vocabulary.pieces:
        raise languages.refusal(unknown[0])
    if config.tag is None and not config.pairs:
        logger.warning("the corpus has no language tokens: %s", languages.refusal(unknown[0]))
    return pair


def _sides_of_pair(
    config: PreprocessConfig, training: TrainingText | None
) -> tuple[LanguagePair, LanguageTokens | None]:
    """Return both tokenizers, and the tokens of languages of the stored pair that both belong to."""
    named = [Path(name) for name in (config.srcdict, config.tgtdict) if name]
    folders = {(find_pair(path) or path).resolve() for path in named}  # ``A``, ``A/`` and ``A/tokenizer`` are one pair
    _require_one_dictionary(config, len(folders))
    languages = config.source_lang, config.target_lang
    stored = find_pair(named[0]) if named and len(folders) == 1 else None
    known = None if stored is None else LanguagePair.load(stored)
    tokens = None if known is None else known.languages
    # If a pair has one vocabulary and two tokenizers, either option names both sides.
    both = config.joined_dictionary and known is not None and known.shared and not known.one_tokenizer
    srcdict, tgtdict = (str(stored), str(stored)) if both else (config.srcdict, config.tgtdict)
    source, target = _existing(config, srcdict, side=0), _existing(config, tgtdict, side=1)
    learned = functools.partial(_learned, config, training)
    if config.joined_dictionary and not both:
        joint = source or target or learned(0, 1)
        return LanguagePair(*languages, joint, joint, shared=True), tokens
    if target is None and config.only_source:
        return _source_alone(config, source or learned(0)), tokens
    source = source or learned(0)
    shared = (both or len(named) == 2) and known is not None and known.shared
    if shared and known is not None and known.one_tokenizer:
        target = source
    return LanguagePair(*languages, source, target or learned(1), shared), tokens


def _require_one_dictionary(config: PreprocessConfig, count: int) -> None:
    if config.joined_dictionary and count > 1:
        raise UsageError("--joined-dictionary uses one vocabulary: give --srcdict or --tgtdict, not two different ones")


def _source_alone(config: PreprocessConfig, source: Tokenizer) -> LanguagePair:
    """Return a pair for text without targets: its target side is the other side of the pair that ``--srcdict`` names."""
    if config.srcdict and (folder := find_pair(Path(config.srcdict))):
        known = LanguagePair.load(folder)
        reverse = config.source_lang == known.target_lang
        target, target_lang = (known.source, known.source_lang) if reverse else (known.target, known.target_lang)
        target = source if known.one_tokenizer else target
        return LanguagePair(config.source_lang, config.target_lang or target_lang, source, target, known.shared)
    return LanguagePair(config.source_lang, config.target_lang, source, source, shared=True)


def _existing(config: PreprocessConfig, name: str | None, side: int) -> Tokenizer | None:
    """Load the tokenizer of a model file, a list of tokens, or a folder with a pair; None if none is named.

    From a pair take the side of the same language, so that a corpus of the other direction serves as well.
    """
    if not name:
        return None
    folder = find_pair(Path(name))
    if folder is None:
        if (description := corpus_of_fairseq(Path(name))) is not None:
            raise DataError(f"{name} is {description}")
        return _builder(config).from_file(Path(name))
    pair = LanguagePair.load(folder)
    if config.joined_dictionary and pair.source.vocabulary != pair.target.vocabulary:
        raise UsageError(
            f"{name} holds two vocabularies, but --joined-dictionary needs one for both languages; omit one of "
            f"the two options"
        )
    language = (config.source_lang, config.target_lang)[side]
    return dict(pair.sides()).get(language, pair.sides()[side][1])


def _learned(config: PreprocessConfig, training: TrainingText | None, *sides: int) -> Tokenizer:
    """Train a tokenizer on one or both sides (0: source, 1: target) of the training text."""
    if training is None:
        raise UsageError(
            "tokens are learned from the training split only: give --trainpref, or existing vocabularies with "
            "--srcdict and --tgtdict (files, or a corpus or run folder)"
        )
    sides = sides if training.text.has_target else (0,)
    names = " and ".join(dict.fromkeys(training.text.called(side) for side in sides))
    builder = _builder(config)
    logger.info(f"learning tokens from {names}")
    try:
        with going_on("learning tokens", config.progress):
            return builder.train(dataclasses.replace(training, sides=sides), config.seed)
    except UsageError as error:
        raise UsageError(f"{names}: {error}") from error


def _builder(config: PreprocessConfig) -> TokenizerBuilder:
    if config.tokenizer is None:
        raise UsageError(f"choose a tokenizer: tokenizer={'|'.join(trainable())}")
    options, symbols = config.tokenizer, getattr(config.tokenizer, "user_defined_symbols", None)
    tokens = [piece_of(tag) for tag in ([config.tag] if config.tag else config.languages)]
    if tokens and symbols is not None:
        options = dataclasses.replace(options, user_defined_symbols=list(dict.fromkeys([*symbols, *tokens])))
    return tokenizers.build(options)


def segmented_pair(config: PreprocessConfig, training: TrainingText | None) -> LanguagePair:
    """Return both tokenizers by ``--bpe`` and its files."""
    named = [config.srcdict, config.tgtdict]
    _require_one_dictionary(config, len({name for name in named if name is not None}))
    shared = config.joined_dictionary or (named[0] == named[1] is not None)
    if shared:
        lists = [_token_list(config, named[0] or named[1], training, 0, 1)] * 2
    else:
        lists = [_token_list(config, name, training, side) for side, name in enumerate(named[: 2 - config.only_source])]
    source = tokenizer_of(config, lists[0])
    one_tokenizer = shared and not config.moses and config.target_bpe_model is None
    target = source if one_tokenizer or len(lists) == 1 else tokenizer_of(config, lists[1], target=True)
    return LanguagePair(config.source_lang, config.target_lang, source, target, shared or len(lists) == 1)


def _token_list(config: PreprocessConfig, name: str | None, training: TrainingText | None, *sides: int) -> list[str]:
    """Return the tokens of a named list, or those of some sides of the training text, the most frequent first."""
    if name is not None:
        return _read_token_list(Path(name))
    if config.bpe is Segmentation.sentencepiece:
        raise UsageError(
            "--bpe sentencepiece needs a token list in addition to the model (--srcdict dict.txt); for a model alone, "
            "give --srcdict MODEL without --bpe"
        )
    if training is None:
        raise UsageError(
            "tokens are counted in the training text: give --trainpref, or token lists with --srcdict and --tgtdict"
        )
    counts: Counter[str] = Counter()
    with going_on("counting tokens", config.progress):
        for side in sides[: 1 + training.text.has_target]:
            segmenter = tokenizer_of(config, [], target=side == 1)
            for line in dataclasses.replace(training, sides=(side,)):
                counts.update(segmenter.surfaces(line))
    for special in SPECIALS:
        counts.pop(special, None)
    return sorted(counts, key=lambda token: (-counts[token], token))


def _read_token_list(path: Path) -> list[str]:
    """Return tokens in the order of their ids, without special symbols."""
    if path.is_file() and is_dictionary_of_fairseq(path):
        return read_fairseq_dictionary(path)[len(FAIRSEQ_SPECIALS) :]
    tokens = read_marian_vocabulary(path)
    if with_space := next((token for token in tokens if " " in token), None):
        raise DataError(
            f"{path}: {with_space[:60]!r} contains a space, but tokens cannot; put a token on each line, or a token and its "
            f"count on each"
        )
    return [token for token in tokens if token not in SPECIALS]


def with_marks(pair: LanguagePair, marks: PieceMarks | None, text: ParallelText, reading: Reading) -> LanguagePair:
    """Return the pair with the marks by which decoding joins text that was cut before.

    ``marks``: None takes those that ``text`` shows, or else those of the existing tokenizers. Warns of files that look cut.
    """
    source = _marks_of(text, 0, pair.source, marks, reading)
    target = _marks_of(text, 1, pair.target, marks, reading) if text.has_target else source
    if pair.one_tokenizer:
        joint = pair.target.joining(target)  # the target side decides: raw text would lose its spaces
        return dataclasses.replace(pair, source=joint, target=joint)
    both = pair.target.joining(target) if text.has_target else pair.target
    return dataclasses.replace(pair, source=pair.source.joining(source), target=both)


def _marks_of(
    text: ParallelText, side: int, tokenizer: Tokenizer, chosen: PieceMarks | None, reading: Reading
) -> PieceMarks:
    """Return the marks of the source (0) or the target (1)."""
    marks, lines, sampled = recognized(text.side(side, reading)) if chosen is None else (chosen, 0, 0)
    if marks is PieceMarks.none:
        return tokenizer.marks if chosen is None else marks
    seen = f" ({SHOWN[marks]} in {lines:,} of {sampled:,} lines)" if sampled else ""
    finding = f"{text.called(side)} is already segmented by {marks.value}{seen}"
    if not tokenizer.keeps_pieces:
        logger.warning(
            f"{finding}, and the tokenizer segments it again; give raw text, or keep its tokens with tokenizer=words"
        )
    elif sampled:
        logger.warning(
            f"{finding}: tokenizer=words keeps its tokens, and translations and scores join them into words "
            f"(--pieces none keeps them separate)"
        )
    return marks

"""Tokenizers of other toolkits: what cut a text, and a list of pieces beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, codes_named
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece_files import damage_named, read_foreign_model
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.errors import MissingInputError, UsageError


def pair_of(given: ImportConfig, source: Sequence[str], target: Sequence[str], *, shared: bool) -> LanguagePair:
    """Both languages and what cuts them, over these pieces; ``shared``: they are one vocabulary."""
    if not (given.source_lang and given.target_lang):
        raise UsageError("name the languages of the model: --source-lang en --target-lang de")
    one = other = tokenizer_of(given, source)
    if not shared or given.moses or given.target_bpe_model is not None:
        other = tokenizer_of(given, target, target=True)
    return LanguagePair(given.source_lang, given.target_lang, one, other, shared)


def stored_pair(folder: Path, given: ImportConfig) -> LanguagePair:
    """The tokenizers that an export of ours put into a folder. The options may call the languages otherwise."""
    pair = LanguagePair.load(folder)
    languages = given.source_lang or pair.source_lang, given.target_lang or pair.target_lang
    return LanguagePair(*languages, pair.source, pair.target, pair.shared)


def tokenizer_of(given: ImportConfig | PreprocessConfig, pieces: Sequence[str], *, target: bool = False) -> Tokenizer:
    """What ``--bpe`` and its file say, over these pieces; ``target``: of the targets, whose file may be another one."""
    if given.moses and given.bpe not in (Segmentation.subword_nmt, Segmentation.fastbpe):
        raise UsageError(f"--moses is for --bpe subword_nmt or fastbpe, and here is {given.bpe.value}; leave it out")
    if given.bpe is Segmentation.none:
        if given.bpe_model is not None:
            raise UsageError(f"say what {given.bpe_model} is: --bpe sentencepiece, subword_nmt or fastbpe")
        return WordTokenizer(WordsConfig(), pieces)
    chosen = given.target_bpe_model if target and given.target_bpe_model is not None else given.bpe_model
    if chosen is None:
        raise UsageError(f"--bpe {given.bpe.value} needs the file that cut the text: --bpe-model FILE")
    path = Path(chosen)
    if given.bpe is Segmentation.sentencepiece:
        return sentencepiece_of(path, pieces)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    language = given.target_lang if target else given.source_lang
    options = BpeCodesConfig(moses=given.moses, language=language if given.moses else "")
    with codes_named(path):
        return BpeCodes(options, content, pieces)


def sentencepiece_of(path: Path, pieces: Sequence[str], *, language_tokens: bool = False) -> SentencePieceList:
    """``language_tokens``: of a model that may read tokens such as >>deu<< before the text."""
    with damage_named(path):
        return SentencePieceList(SentencePieceListConfig(language_tokens), read_foreign_model(path), pieces)

"""Tokenizers of other toolkits: a segmenter of text, and a list of tokens that gives the ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from nmt.errors import UsageError
from nmt.storage.reading import read_file


def pair_of(options: ImportConfig, source: Sequence[str], target: Sequence[str], *, shared: bool) -> LanguagePair:
    """Return both tokenizers for these lists of tokens; ``shared``: they are one vocabulary."""
    require_languages(options.source_lang, options.target_lang)
    source_tokenizer = target_tokenizer = tokenizer_of(options, source)
    if not shared or options.moses or options.target_bpe_model is not None:
        target_tokenizer = tokenizer_of(options, target, target=True)
    return LanguagePair(options.source_lang, options.target_lang, source_tokenizer, target_tokenizer, shared)


def require_languages(source: str, target: str) -> None:
    """Refuse to read a model whose languages are unknown."""
    if not (source and target):
        raise UsageError("name the languages of the model: --source-lang en --target-lang de")


def stored_pair(folder: Path, options: ImportConfig) -> LanguagePair:
    """Load the tokenizers that nmt-export stored in a folder. The options may name other languages."""
    pair = LanguagePair.load(folder)

    def language(option: str, stored: str) -> str:
        if option in ("", stored):
            return stored
        return option if pair.languages is None else pair.languages.known(option)

    source, target = language(options.source_lang, pair.source_lang), language(options.target_lang, pair.target_lang)
    return replace(pair, source_lang=source, target_lang=target)


def tokenizer_of(options: ImportConfig | PreprocessConfig, pieces: Sequence[str], *, target: bool = False) -> Tokenizer:
    """Return the tokenizer of ``--bpe`` and its file; ``target``: that of the targets, which may have another file."""
    if options.moses and options.bpe not in (Segmentation.subword_nmt, Segmentation.fastbpe):
        raise UsageError(f"--moses is for --bpe subword_nmt or fastbpe, not {options.bpe.value}; omit it")
    if options.bpe is Segmentation.none:
        if options.bpe_model is not None:
            raise UsageError(f"give the kind of {options.bpe_model}: --bpe sentencepiece, subword_nmt or fastbpe")
        return WordTokenizer(WordsConfig(), pieces)
    chosen = options.target_bpe_model if target and options.target_bpe_model is not None else options.bpe_model
    if chosen is None:
        raise UsageError(f"--bpe {options.bpe.value} needs the file that segmented the text: --bpe-model FILE")
    path = Path(chosen)
    if options.bpe is Segmentation.sentencepiece:
        return sentencepiece_of(path, pieces)
    content = read_file(path)
    language = options.target_lang if target else options.source_lang
    codes_config = BpeCodesConfig(moses=options.moses, language=language if options.moses else "")
    with codes_named(path):
        return BpeCodes(codes_config, content, pieces)


def sentencepiece_of(path: Path, pieces: Sequence[str], *, language_tokens: bool = False) -> SentencePieceList:
    """``language_tokens``: the model reads tokens such as >>deu<< before the text."""
    with damage_named(path):
        return SentencePieceList(SentencePieceListConfig(language_tokens), read_foreign_model(path), pieces)

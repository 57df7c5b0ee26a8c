"""Writes the tokenizers of M2M100, NLLB and mBART-50."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.errors import UsageError
from nmt.formats import PortableModel
from nmt.formats.huggingface.multilingual import M2M100_LANGUAGES, MASK, SENTENCEPIECE
from nmt.storage.files import write_json


def is_multilingual(model: PortableModel) -> bool:
    """Whether a model reads the tokens of languages as M2M100, NLLB and mBART-50 do."""
    languages = model.pair.languages
    return languages is not None and languages.source is SourceToken.source and languages.target


def source_language(pair: LanguagePair, token: str) -> str:
    """Return the name of a source language in transformers: M2M100Tokenizer reads codes, the others read tokens."""
    assert pair.languages is not None
    return str(pair.languages.code(token)) if language_codes(pair.source.vocabulary.pieces) else token


def language_codes(symbols: Sequence[str]) -> str | None:
    """Return the name of M2M100's list of languages whose tokens end the vocabulary; None: they do not."""
    lists = {name: [f"__{code}__" for code in codes.split()] for name, codes in M2M100_LANGUAGES.items()}
    return next((name for name, tokens in lists.items() if [*symbols[-len(tokens) :]] == tokens), None)


def write_multilingual_tokenizer(model: PortableModel, folder: Path, symbols: Sequence[str], longest: int) -> None:
    """Write the files of M2M100Tokenizer, NllbTokenizer or MBart50Tokenizer. ``symbols``: tokens by id; ``longest``: tokens
    of a sentence."""
    pair, languages = model.pair, model.pair.languages
    if not isinstance(pair.source, SentencePieceTokenizer) or languages is None:
        raise UsageError("Hugging Face's multilingual models have sentencepiece tokenizers; export to ctranslate2")
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    sides = {"src_lang": pair.source_lang, "tgt_lang": pair.target_lang}
    tokens = {side: languages.tokens[code] for side, code in sides.items() if code}
    options = {"model_max_length": longest, **{side: source_language(pair, token) for side, token in tokens.items()}}
    (folder / SENTENCEPIECE).write_bytes(pair.source.model_bytes())
    codes = language_codes(symbols)
    if codes is not None:
        kept = {token: number for token, number in ids.items() if token not in languages.tokens.values()}
        (folder / "vocab.json").write_text(json.dumps(kept, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        options |= {"tokenizer_class": "M2M100Tokenizer", "language_codes": codes}
        options["additional_special_tokens"] = [*languages.tokens.values()]  # decoding omits them
        write_json(folder / "tokenizer_config.json", options)
        return
    if MASK not in ids:
        options["mask_token"] = None
    kind = _with_merges if pair.source.is_kind("bpe") else _with_scores
    kind(folder, ids, languages, options).save_pretrained(folder)
    (folder / SENTENCEPIECE).unlink()  # transformers reads tokenizer.json, and numbers the model's tokens otherwise


def _with_merges(folder: Path, ids: Mapping[str, int], languages: LanguageTokens, options: Mapping[str, Any]) -> Any:
    import transformers

    extracted = sentencepiece_parts(folder / SENTENCEPIECE, transformers.NllbTokenizer)
    if lost := [token for token in map("".join, extracted["merges"]) if token not in ids]:
        raise UsageError(
            f"the sentencepiece model has the token {lost[0]!r}, which the vocabulary lacks; NllbTokenizer needs all of its "
            "tokens; export to ctranslate2"
        )
    return transformers.NllbTokenizer(
        vocab={**ids},
        merges=extracted["merges"],
        _spm_precompiled_charsmap=extracted["_spm_precompiled_charsmap"],
        extra_special_tokens=[*languages.tokens.values()],
        **options,
    )


def _with_scores(folder: Path, ids: Mapping[str, int], languages: LanguageTokens, options: Mapping[str, Any]) -> Any:
    import transformers
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

    if {*languages.tokens.values()} != {*FAIRSEQ_LANGUAGE_CODES}:
        raise UsageError(
            f"transformers' unigram tokenizer has the {len(FAIRSEQ_LANGUAGE_CODES)} languages of mBART-50, the model has "
            f"{len(languages.tokens)}; export to ctranslate2"
        )
    extracted = sentencepiece_parts(folder / SENTENCEPIECE, transformers.MBart50Tokenizer)
    scores = dict(extracted["vocab"])
    return transformers.MBart50Tokenizer(
        vocab=[(token, scores.get(token, 0.0)) for token in ids],
        _spm_precompiled_charsmap=extracted["_spm_precompiled_charsmap"],
        **options,
    )


def sentencepiece_parts(path: Path, kind: Any) -> dict[str, Any]:
    """Return the parts of the sentencepiece model that a tokenizer of transformers is made of."""
    from transformers.convert_slow_tokenizer import SentencePieceExtractor

    parts: Any = SentencePieceExtractor(str(path)).extract(kind.model)  # annotated wrongly there
    return dict(parts)

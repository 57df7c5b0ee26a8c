"""Models with a part of their vocabulary: the tokens that some languages and a text need. Their scores stay the same."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.text.lines import Reading
from nmt.data.tokenizers import tokenizers as kinds
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.tokenizers.trimming import needed_tokens, without_tokens
from nmt.data.vocabulary import SPECIALS
from nmt.errors import DataError, UsageError
from nmt.formats import PortableModel
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order
from nmt.models.transformer.weights import arrays_of
from nmt.progress import show_progress
from nmt.storage.reading import require_file

_MEGABYTES = 4 / 1e6  # of a parameter in the model folder

logger = logging.getLogger("nmt.import")


def trim(models: Sequence[PortableModel], options: ImportConfig) -> tuple[list[PortableModel], dict[str, Any]]:
    """Return the models with the tokens that ``options`` keep, and facts for their manifests.

    ``models`` have one language pair and equal vocabularies. Without options they stay unchanged.
    """
    if not (options.languages or options.vocabulary_text):
        return [*models], {}
    pair = models[0].pair
    languages, tokenizers = _restricted(pair, options.languages), _tokenizers(pair)
    tags = {*pair.language_tokens.tokens.values()}
    dropped = tags.difference(languages.tokens.values())
    counts = Counter[str]()
    if options.vocabulary_text:
        counts = _counts(tokenizers, options)
        frequent = {piece for piece, count in counts.items() if count >= options.vocabulary_min_count}
        needed = set[str]().union(*(needed_tokens(tokenizer, frequent | tags) for tokenizer in tokenizers))
        known = (piece for tokenizer in tokenizers for piece in (*tokenizer.vocabulary.pieces, *tokenizer.scores()))
        dropped.update(piece for piece in known if piece not in needed)
    smaller = [without_tokens(tokenizer, dropped) for tokenizer in tokenizers]
    orders = [_order(*both) for both in zip(tokenizers, smaller)]
    source, target = orders[0], orders[0 if pair.shared else -1]
    new = replace(pair, source=smaller[0], target=smaller[-1], languages=pair.languages and languages).checked()
    results = [replace(model, weights=in_our_order(model.weights, source, target), pair=new) for model in models]
    sizes = zip(_sizes(models[0]), _sizes(results[0]))
    facts = {name: [before, after] for (name, before), (_, after) in sizes if before}
    if counts:
        lost = sum(count for piece, count in counts.items() if piece in dropped)
        facts["text_tokens"] = [counts.total(), counts.total() - lost]
    _report(facts)
    return results, {"trimmed": facts}


def _restricted(pair: LanguagePair, names: Sequence[str]) -> LanguageTokens:
    """Return the languages with these names; without names, all of the model."""
    known, own = pair.language_tokens, {"source": pair.source_lang, "target": pair.target_lang}
    if not names:
        return known
    written = f"--languages {','.join(names)}"
    if not known.tokens:
        raise UsageError(f"{written} needs a model of several languages, but this one has no language tokens; omit it")
    codes = {known.code(name) or name for name in names}
    for name in sorted(codes.difference(known.tokens, own.values())):
        raise known.refusal(name)
    for side, language in own.items():
        if language in known.tokens and language not in codes:
            raise UsageError(
                f"{written} would drop the token of {language}, the model's default {side} language; add {language}, or "
                f"choose another default with --{side}-lang"
            )
    if pair.languages and known.source is SourceToken.source and len(codes) == 1:
        raise UsageError(f"{written} is a single language; name those to translate from and those to translate to")
    directions = {f"{source}-{target}" for source in codes for target in codes}
    return replace(
        known,
        tokens={code: token for code, token in known.tokens.items() if code in codes},
        trained=tuple(direction for direction in known.trained if direction in directions),
        zero_shot=tuple(direction for direction in known.zero_shot if direction in directions),
    )


def _tokenizers(pair: LanguagePair) -> list[SentencePieceTokenizer]:
    """Return the one or two tokenizers. Refuse those that cannot cut a word into smaller tokens."""
    tokenizers = list[SentencePieceTokenizer]()
    for tokenizer in (pair.source, pair.target)[: 1 if pair.one_tokenizer else 2]:
        if not isinstance(tokenizer, SentencePieceTokenizer) or not any(map(tokenizer.is_kind, ("bpe", "unigram"))):
            raise UsageError(
                "--languages and --vocabulary-text need subwords of sentencepiece, but this model has "
                f"tokenizer={kinds.name_of(type(tokenizer.config))}; omit them"
            )
        tokenizers.append(tokenizer)
    return tokenizers


def _counts(tokenizers: Sequence[SentencePieceTokenizer], options: ImportConfig) -> Counter[str]:
    """Return how often the tokens occur in the text, cut by each tokenizer."""
    counts = Counter[str]()
    paths = [Path(name) for name in options.vocabulary_text]
    for path in paths:
        require_file(path)
    with show_progress(options.progress, "vocabulary text", "lines") as count_lines:
        for path in paths:
            of_file = Counter[str]()
            for block in Reading(advice="correct it: --vocabulary-text is UTF-8").blocks(path):
                lines = [line for line in block if line]
                for tokenizer in tokenizers:
                    occurring = zip(*np.unique(tokenizer.encode_flat(lines)[0], return_counts=True))
                    pieces = tokenizer.vocabulary.pieces
                    of_file.update(
                        {pieces[number]: int(times) for number, times in occurring if number >= len(SPECIALS)}
                    )
                count_lines(len(block))
            if not of_file.total():
                raise DataError(f"{path} has no text that the model knows; give text of the languages to keep")
            counts += of_file
    return counts


def _order(old: SentencePieceTokenizer, new: SentencePieceTokenizer) -> VocabularyOrder:
    pieces = new.vocabulary.pieces[len(SPECIALS) :]
    return VocabularyOrder(pieces, (*range(len(SPECIALS)), *map(old.vocabulary.id, pieces)))


def _sizes(model: PortableModel) -> list[tuple[str, int]]:
    sizes = model.pair.sizes
    return [
        ("languages", len(model.pair.language_tokens.tokens)),
        ("vocabulary", sizes.source if sizes.shared else sizes.source + sizes.target),
        ("parameters", sum({id(array): array.size for _, array in arrays_of(model.weights)}.values())),
    ]


def _report(facts: Mapping[str, Sequence[int]]) -> None:
    for name, (before, after) in facts.items():
        label = name.replace("_", " ")
        logger.info("%s: kept %s of %s (%.2f%%)", label, f"{after:,}", f"{before:,}", 100 * after / before)
    logger.info("size in float32: %s MB, before %s MB", *(f"{_MEGABYTES * n:,.1f}" for n in facts["parameters"][::-1]))
    if "text_tokens" not in facts:
        logger.warning(
            "only language tokens were dropped; with --vocabulary-text FILES, only the tokens of these files are kept"
        )

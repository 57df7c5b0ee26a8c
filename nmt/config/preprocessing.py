"""The options of nmt-preprocess."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.choices import InvalidText, PieceMarks, Sides, WeightKind
from nmt.config.common_options import (
    CutTextOptions,
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    SeedOption,
    invalid_text_option,
)
from nmt.config.option import FlagKind, ShortRepr, flag, group, section
from nmt.config.roles import CommandConfig
from nmt.errors import UsageError


class Leaked(Enum):
    """Parts of valid and test that training text must not contain."""

    pairs = "pairs"
    sources = "sources"


@dataclass
class FilterConfig(ShortRepr):
    """Which training pairs are kept. Every dropped pair is counted under its reason."""

    min_length: int = flag(1, help="Minimum sentence length in tokens")
    max_length: int = flag(1024, help="Maximum sentence length in tokens")
    max_ratio: float | None = flag(None, help="Maximum ratio of the two lengths in tokens; null: no limit")
    max_characters: int | None = flag(None, help="Maximum sentence length in characters; null: no limit")
    max_word: int | None = flag(None, help="Maximum word length in characters; null: no limit")
    drop_copies: bool = flag(False, help="Drop pairs whose source and target are identical")
    max_digits_apart: int | None = flag(
        None, help="Maximum difference in the number of digits between the two sides; null: no limit"
    )
    max_punctuation_apart: int | None = flag(
        None, help="Maximum difference in the number of punctuation marks between the two sides; null: no limit"
    )
    source_script: str | None = flag(
        None, help="Required script of the sources, by Unicode name, such as Latin, Cyrillic or Han; null: any"
    )
    target_script: str | None = flag(None, help="Required script of the targets, by Unicode name; null: any")
    min_script: float = flag(0.5, help="Minimum fraction of a sentence's letters in the required script")
    drop_leaked: Leaked | None = flag(
        None,
        help="Drop training pairs that also occur in valid or test: pairs (both sides match) or sources (the "
        "source matches); null: none",
    )
    drop_duplicates: bool = flag(False, help="Keep only the first of several identical pairs")
    near_duplicates: bool = flag(
        False, help="Ignore case, punctuation and spaces in --drop-leaked, --drop-duplicates and the report"
    )

    def __post_init__(self) -> None:
        require_positive("filters", min_length=self.min_length, max_length=self.max_length, max_ratio=self.max_ratio)
        require_positive("filters", max_characters=self.max_characters, max_word=self.max_word)
        require_not_negative("filters", max_digits_apart=self.max_digits_apart or 0)
        require_not_negative("filters", max_punctuation_apart=self.max_punctuation_apart or 0)
        if not 0 < self.min_script <= 1:
            raise UsageError(f"filters.min_script={self.min_script:g} must be above 0, and at most 1 (--min-script)")


@dataclass
class PreprocessConfig(
    SeedOption, ProgressOption, PluginOption, OverwriteOption, ReadingOptions, CutTextOptions, CommandConfig
):
    """nmt-preprocess: prepare parallel text as a corpus folder."""

    command: ClassVar[str] = "preprocess"
    source_lang: str = flag("", help="Source language, also the suffix of its files")
    target_lang: str = flag("", help="Target language, also the suffix of its files")
    trainpref: str | None = flag(
        None,
        help="Training text: file names without language suffix, or .tsv or .jsonl files; several "
        "comma-separated: their concatenation; null: none",
        kind=FlagKind.joined,
    )
    validpref: str | None = flag(
        None,
        help="Validation text, as for --trainpref; several comma-separated: one split each; null: none",
        kind=FlagKind.joined,
    )
    testpref: str | None = flag(
        None,
        help="Test text, as for --trainpref; several comma-separated: one split each; null: none",
        kind=FlagKind.joined,
    )
    tsv: str | None = flag(
        None,
        help="Training text with one pair per line in tab-separated columns; -: standard input; null: none",
        kind=FlagKind.joined,
    )
    jsonl: str | None = flag(
        None,
        help="Training text with one JSON object per line that contains both sides; -: standard input; null: none",
        kind=FlagKind.joined,
    )
    columns: list[int] = flag([1, 2], help="Columns of source and target in tab-separated text, counted from 1")
    fields: list[str] = flag(
        [], help="JSON fields of source and target, such as translation.en; empty: the language names"
    )
    destdir: str = flag("data-bin", help="Corpus folder to write")
    tokenizer: Any = group(
        "tokenizer",
        help="Tokenizer, which splits text into tokens (subwords, words or characters)",
        flag="--tokenizer",
        preset="bpe",
    )
    joined_dictionary: bool = flag(False, help="Use one vocabulary for both languages")
    srcdict: str | None = flag(
        None,
        help="Existing source vocabulary: sentencepiece model, token list, corpus folder or run folder; "
        "null: learned from the text",
    )
    tgtdict: str | None = flag(None, help="Existing target vocabulary, as for --srcdict; null: learned from the text")
    pieces: PieceMarks | None = flag(
        None, help="Subword marks of text that is already segmented: none, subword_nmt or sentencepiece; null: detected"
    )
    tag: str | None = flag(
        None, help="Target language of a corpus with language tokens: de stands for the token <2de>; null: no tokens"
    )
    tag_side: Sides | None = flag(
        None,
        help="Position of the target language's token: source (before the source), target (first token of the "
        "target) or both; needs --tag or --pairs; null: that of the existing vocabulary, else source",
    )
    pairs: list[str] = flag(
        [], help="Directions to train in one corpus with a joint vocabulary, such as en-de,de-en; empty: a single one"
    )
    zero_shot: list[str] = flag(
        [], help="Directions of --pairs' languages to validate and test, but never to train; empty: none"
    )
    align_suffix: str | None = flag(
        None, help="Suffix of word alignment files: lines of i-j pairs, words counted from 0; null: no alignments"
    )
    weight_suffix: str | None = flag(
        None, help="Suffix of weight files next to the text, with one line per pair; null: no weight files"
    )
    weight_column: int | None = flag(
        None, help="Column of the weights in tab-separated text, counted from 1; null: no weight column"
    )
    weight_field: str | None = flag(
        None, help="JSON field of the weights, a number or a list of numbers; null: no weight field"
    )
    weight_kind: WeightKind = flag(
        WeightKind.pair,
        help="Unit of the weights: pair (one number per pair) or token (one number per word or per token of the target)",
    )
    only_source: bool = flag(False, help="Read the source side only (test sets to translate)")
    filters: FilterConfig = section(FilterConfig, help="rules for keeping training pairs")
    keep_dropped: str | None = flag(
        None,
        help="File for dropped training pairs: reason, pair number, source and target, tab-separated; null: none",
    )
    shard: str | None = flag(
        None,
        help="Part i/n of the training text to prepare, with existing vocabularies, in a subfolder of "
        "--destdir; null: all",
    )
    merge: str | None = flag(
        None, help="Folder of all shards to join into one corpus, instead of reading text; null: none"
    )
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "with the whole pair")
    workers: int = flag(1, help="Number of processes that encode text")
    keep_text: bool = flag(False, help="Store the text of the training pairs too, as nmt-train --augment needs")

    @property
    def languages(self) -> list[str]:
        return list(dict.fromkeys(language for direction in self.pairs for language in direction.split("-")))

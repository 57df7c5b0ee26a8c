"""The options of nmt-preprocess."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.choices import InvalidText, PieceMarks
from nmt.config.common_options import (
    OverwriteOption,
    PluginOption,
    ProgressOption,
    ReadingOptions,
    SeedOption,
    invalid_text_option,
)
from nmt.config.cut_text import CutTextConfig
from nmt.config.option import FlagKind, flag, group, section
from nmt.errors import UsageError


class Leaked(Enum):
    """Parts of valid and test that training text must not contain."""

    pairs = "pairs"
    sources = "sources"


@dataclass
class FilterConfig:
    """Which training pairs are kept. Every dropped pair is counted under its reason."""

    min_length: int = flag(1, help="shortest sentence kept, in pieces")
    max_length: int = flag(1024, help="longest sentence kept, in pieces")
    max_ratio: float | None = flag(None, help="largest ratio of the two lengths; null keeps all")
    max_characters: int | None = flag(None, help="longest sentence kept, in characters; null keeps all")
    max_word: int | None = flag(None, help="longest word kept, in characters; null keeps all")
    drop_copies: bool = flag(False, help="drop pairs whose sides are the same text")
    max_digits_apart: int | None = flag(
        None, help="sides may have so many digits more than each other; null: any number"
    )
    max_punctuation_apart: int | None = flag(
        None, help="sides may have so many punctuation marks more than each other; null: any number"
    )
    source_script: str | None = flag(
        None, help="script that sources are written in, by its Unicode name, such as Latin, Cyrillic or Han"
    )
    target_script: str | None = flag(None, help="the same for targets")
    min_script: float = flag(0.5, help="smallest share of a sentence's letters that must be in the script")
    drop_leaked: Leaked | None = flag(
        None, help="drop training pairs that stand in valid or test: pairs (both sides do) or sources; null keeps them"
    )
    drop_duplicates: bool = flag(False, help="keep each distinct pair once")
    near_duplicates: bool = flag(
        False, help="texts count as the same, here and in the report, if only case, punctuation and spaces differ"
    )

    def __post_init__(self) -> None:
        require_positive("filters", min_length=self.min_length, max_length=self.max_length, max_ratio=self.max_ratio)
        require_positive("filters", max_characters=self.max_characters, max_word=self.max_word)
        require_not_negative("filters", max_digits_apart=self.max_digits_apart or 0)
        require_not_negative("filters", max_punctuation_apart=self.max_punctuation_apart or 0)
        if not 0 < self.min_script <= 1:
            raise UsageError(f"filters.min_script={self.min_script:g} must be above 0, and at most 1 (--min-script)")


@dataclass
class PreprocessConfig(SeedOption, ProgressOption, PluginOption, OverwriteOption, ReadingOptions, CutTextConfig):
    """nmt-preprocess: parallel text in, a corpus folder out."""

    command: ClassVar[str] = "preprocess"
    source_lang: str = flag("", help="source language, the suffix of its files")
    target_lang: str = flag("", help="target language, the suffix of its files")
    trainpref: str | None = flag(
        None,
        help="training text: files without the language suffix, or .tsv and .jsonl files with both sides; several with "
        "commas, one behind the other",
        kind=FlagKind.joined,
    )
    validpref: str | None = flag(
        None, help="validation text, likewise; each of several is a split of its own", kind=FlagKind.joined
    )
    testpref: str | None = flag(None, help="test text, likewise", kind=FlagKind.joined)
    tsv: str | None = flag(
        None,
        help="training text with a pair on each line, in columns that tabs separate; - is standard input",
        kind=FlagKind.joined,
    )
    jsonl: str | None = flag(
        None,
        help="training text with a JSON object on each line, whose fields are both sides; - is standard input",
        kind=FlagKind.joined,
    )
    columns: list[int] = flag([1, 2], help="columns of source and target, from 1")
    fields: list[str] = flag(
        [], help="JSON's fields of source and target, such as translation.en; none: the languages' names"
    )
    destdir: str = flag("data-bin", help="corpus folder to write")
    tokenizer: Any = group("tokenizer", help="how text is cut into pieces", flag="--tokenizer", preset="bpe")
    joined_dictionary: bool = flag(False, help="one vocabulary for both languages")
    srcdict: str | None = flag(
        None, help="given source vocabulary: a sentencepiece model, a list of pieces, or a corpus or run folder"
    )
    tgtdict: str | None = flag(None, help="given target vocabulary, likewise")
    pieces: PieceMarks | None = flag(
        None, help="how the text was cut already: none, subword_nmt or sentencepiece; null: recognised by its marks"
    )
    tag: str | None = flag(
        None,
        help="language tag, such as de: its piece <2de> stands before each source, for a model of several directions",
    )
    align_suffix: str | None = flag(None, help="suffix of files of word alignments: lines of i-j pairs, words from 0")
    only_source: bool = flag(False, help="only the source side exists (test sets to translate)")
    filters: FilterConfig = section(FilterConfig, help="which training pairs are kept")
    keep_dropped: str | None = flag(
        None,
        help="file for the training pairs that are dropped: reason, number of the pair, source and target, with tabs",
    )
    shard: str | None = flag(
        None,
        help="i/n: prepare the i-th of n parts of the training text, with given vocabularies, in a folder of destdir",
    )
    merge: str | None = flag(
        None, help="folder of all shards: join them to the corpus that one run makes; no text is given then"
    )
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "the pair")
    workers: int = flag(1, help="processes that encode text")
    keep_text: bool = flag(False, help="keep the text of the training pairs too: nmt-train --augment needs it")

"""Which pairs of the training split are kept. Every pair that is dropped has one reason, and is counted under it.

What can be said of the text alone is said by the process that encodes it (``TextRules``); the rest, and in which order the
rules are asked, by the main process (``PairFilter``).
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import regex

from nmt.config.preprocessing import FilterConfig, Leaked
from nmt.data.vocabulary import Flags
from nmt.errors import UsageError

if TYPE_CHECKING:
    from nmt.data.encoding import EncodedPairs, Keys

Codes = npt.NDArray[np.int8]

_NOT_WORDS = regex.compile(r"[\p{P}\p{Z}\p{C}]+")  # symbols, such as currencies and signs of sums, are words
_LETTERS, _DIGITS, _PUNCTUATION = (regex.compile(rf"\p{{{kind}}}") for kind in ("L", "Nd", "P"))


class Reason(IntEnum):
    """Why a pair was dropped, in the order in which the rules are asked; a pair has one reason."""

    kept = 0, "kept"
    invalid = 1, "bytes that are not text"
    empty_source = 2, "empty source"
    empty_target = 3, "empty target"
    too_short = 4, "shorter than filters.min_length"
    too_long = 5, "longer than filters.max_length"
    ratio = 6, "lengths differ more than filters.max_ratio"
    characters = 7, "longer than filters.max_characters"
    long_word = 8, "a word longer than filters.max_word"
    copied = 9, "both sides are the same text"
    digits = 10, "digits differ more than filters.max_digits_apart"
    punctuation = 11, "punctuation differs more than filters.max_punctuation_apart"
    source_script = 12, "source is not in filters.source_script"
    target_script = 13, "target is not in filters.target_script"
    leaked = 14, "stands in valid or test too"
    duplicate = 15, "pair seen before"

    text: str

    def __new__(cls, code: int, text: str) -> Reason:
        reason = int.__new__(cls, code)
        reason._value_ = code
        reason.text = text
        return reason


def normalised(line: str) -> str:
    """What is left of a line without case, punctuation and spaces; of a line that has nothing else, all of it."""
    folded = unicodedata.normalize("NFKC", line).casefold()
    return _NOT_WORDS.sub("", folded) or folded


def _has_longer(line: str, longest: int) -> bool:
    return len(line) > longest and any(len(word) > longest for word in line.split())


@functools.cache
def letters_of(script: str) -> regex.Pattern[str]:
    """Of a script by its Unicode name or short name, such as Latin, Cyrl or Han."""
    try:
        return regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UsageError(
            f"'{script}' is no script of Unicode; name one such as Latin, Cyrillic, Greek, Arabic, Han, Hiragana, Hangul or "
            f"Devanagari (--source-script, --target-script)"
        ) from None


@dataclass(frozen=True)
class TextRules:
    """What is asked of the text itself, before it is cut into pieces."""

    config: FilterConfig

    def __post_init__(self) -> None:
        for script in (self.config.source_script, self.config.target_script):
            if script is not None:
                letters_of(script)

    def judge(self, source: Sequence[str], target: Sequence[str] | None) -> Codes:
        """The first rule that each pair breaks, by its ``Reason``."""
        codes = np.zeros(len(source), dtype=np.int8)
        for reason, breaks in self._rules(source, target):
            flags = np.fromiter(breaks, dtype=np.bool_, count=len(source))
            codes[flags & (codes == Reason.kept)] = reason
        return codes

    def _rules(self, source: Sequence[str], target: Sequence[str] | None) -> Iterator[tuple[Reason, Iterator[bool]]]:
        """Those that are set."""
        config, sides = self.config, [source] if target is None else [source, target]
        if (most := config.max_characters) is not None:
            yield Reason.characters, (any(len(line) > most for line in pair) for pair in zip(*sides))
        if (longest := config.max_word) is not None:
            yield Reason.long_word, (any(_has_longer(line, longest) for line in pair) for pair in zip(*sides))
        if target is not None:
            if config.drop_copies:
                yield Reason.copied, (one == other for one, other in zip(source, target))
            if (apart := config.max_digits_apart) is not None:
                yield Reason.digits, _differ(_DIGITS, source, target, apart)
            if (apart := config.max_punctuation_apart) is not None:
                yield Reason.punctuation, _differ(_PUNCTUATION, source, target, apart)
        for reason, script, side in (
            (Reason.source_script, config.source_script, source),
            (Reason.target_script, config.target_script, target),
        ):
            if script is not None and side is not None:
                yield reason, map(functools.partial(_is_foreign, letters_of(script), config.min_script), side)


def _differ(kind: regex.Pattern[str], source: Sequence[str], target: Sequence[str], most: int) -> Iterator[bool]:
    counts = ((len(kind.findall(line)) for line in side) for side in (source, target))
    return (abs(one - other) > most for one, other in zip(*counts))


def _is_foreign(script: regex.Pattern[str], least: float, line: str) -> bool:
    """Of the letters of a line, if it has some, fewer than ``least`` are of the script."""
    letters = len(_LETTERS.findall(line))
    return letters > 0 and len(script.findall(line)) < least * letters


@dataclass
class PairFilter:
    """The rules, and the memory of the pairs seen so far if duplicates are dropped."""

    config: FilterConfig
    leaks: Keys | None = None  # of the pairs, or sources, that must not stand in the training text
    tags: int = 0  # pieces before each source that say which language is wanted
    _seen: set[int] = field(default_factory=set)

    def judge(self, pairs: EncodedPairs) -> Codes:
        """A ``Reason`` for each pair. Lengths are in pieces, without tags and eos."""
        source = np.maximum(pairs.source.lengths - 1 - self.tags, 0)
        target = source if pairs.target is None else pairs.target.lengths - 1
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        none = np.zeros(len(source), dtype=bool)
        rules: dict[Reason, Flags] = {
            Reason.invalid: pairs.invalid,
            Reason.empty_source: pairs.blank_source,
            Reason.empty_target: none if pairs.target is None else pairs.blank_target,
            Reason.too_short: shorter < self.config.min_length,
            Reason.too_long: longer > self.config.max_length,
            Reason.ratio: none if self.config.max_ratio is None else longer > self.config.max_ratio * shorter,
        }
        codes = np.select(list(rules.values()), list(rules), default=Reason.kept).astype(np.int8)
        codes = np.where(codes == Reason.kept, pairs.text_reasons, codes)
        if self.leaks is not None:
            keys = pairs.pair_keys if self.config.drop_leaked is Leaked.pairs else pairs.source_keys
            codes[(codes == Reason.kept) & np.isin(keys, self.leaks)] = Reason.leaked
        for position in np.flatnonzero(codes == Reason.kept) if self.config.drop_duplicates else ():
            key = int(pairs.pair_keys[position])
            if key in self._seen:
                codes[position] = Reason.duplicate
            self._seen.add(key)  # only pairs that are kept count as seen
        return codes

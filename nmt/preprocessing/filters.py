"""Filters of the training split. Each dropped pair is counted under the first filter that drops it.

``TextFilter`` judges the text in the process that encodes it. ``PairFilter`` judges the encoded pairs in the main process,
and orders the verdicts.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import regex

from nmt.config.preprocessing import FilterConfig, Leaked
from nmt.data.vocabulary import Flags
from nmt.errors import UsageError
from nmt.preprocessing.pairs import EncodedPairs, Keys, Verdict, Verdicts

_NOT_WORDS = regex.compile(r"[\p{P}\p{Z}\p{C}]+")  # symbols, such as currency signs, are words
_LETTERS, _DIGITS, _PUNCTUATION = (regex.compile(rf"\p{{{kind}}}") for kind in ("L", "Nd", "P"))


def normalized(line: str) -> str:
    """Remove case, punctuation and spaces; a line of punctuation and spaces alone keeps them."""
    folded = unicodedata.normalize("NFKC", line).casefold()
    return _NOT_WORDS.sub("", folded) or folded


def _has_longer(line: str, longest: int) -> bool:
    return len(line) > longest and any(len(word) > longest for word in line.split())


@functools.cache
def letters_of(script: str) -> regex.Pattern[str]:
    """Return the pattern of a script by its Unicode name or short name, such as Latin, Cyrl or Han."""
    try:
        return regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UsageError(
            f"'{script}' is not a Unicode script; name one such as Latin, Cyrillic, Greek, Arabic, Han, Hiragana, "
            f"Hangul or Devanagari (--source-script, --target-script)"
        ) from None


@dataclass(frozen=True)
class TextFilter:
    """The filters that need the text of both sides."""

    config: FilterConfig

    def __post_init__(self) -> None:
        for script in (self.config.source_script, self.config.target_script):
            if script is not None:
                letters_of(script)

    def judge(self, source: Sequence[str], target: Sequence[str] | None) -> Verdicts:
        """Return a ``Verdict`` for each pair: that of the first filter that drops it."""
        verdicts = np.zeros(len(source), dtype=np.int8)
        for verdict, drops in self._filters(source, target):
            flags = np.fromiter(drops, dtype=np.bool_, count=len(source))
            verdicts[flags & (verdicts == Verdict.kept)] = verdict
        return verdicts

    def _filters(self, source: Sequence[str], target: Sequence[str] | None) -> Iterator[tuple[Verdict, Iterator[bool]]]:
        """The filters that are set: each with a flag for every pair, which it drops if True."""
        config, sides = self.config, [source] if target is None else [source, target]
        if (most := config.max_characters) is not None:
            yield Verdict.characters, (any(len(line) > most for line in pair) for pair in zip(*sides))
        if (longest := config.max_word) is not None:
            yield Verdict.long_word, (any(_has_longer(line, longest) for line in pair) for pair in zip(*sides))
        if target is not None:
            if config.drop_copies:
                yield Verdict.copied, (line == other for line, other in zip(source, target))
            if (most_apart := config.max_digits_apart) is not None:
                yield Verdict.digits, _differ(_DIGITS, source, target, most_apart)
            if (most_apart := config.max_punctuation_apart) is not None:
                yield Verdict.punctuation, _differ(_PUNCTUATION, source, target, most_apart)
        for verdict, script, side in (
            (Verdict.source_script, config.source_script, source),
            (Verdict.target_script, config.target_script, target),
        ):
            if script is not None and side is not None:
                yield verdict, map(functools.partial(_is_foreign, letters_of(script), config.min_script), side)


def _differ(kind: regex.Pattern[str], source: Sequence[str], target: Sequence[str], most: int) -> Iterator[bool]:
    counts = ((len(kind.findall(line)) for line in side) for side in (source, target))
    return (abs(count - other) > most for count, other in zip(*counts))


def _is_foreign(script: regex.Pattern[str], least: float, line: str) -> bool:
    """Whether a share of less than ``least`` of the letters of a line is of the script; never without letters."""
    letters = len(_LETTERS.findall(line))
    return letters > 0 and len(script.findall(line)) < least * letters


@dataclass
class PairFilter:
    """All filters, in their order; with ``drop_duplicates`` it remembers the pairs seen so far."""

    config: FilterConfig
    leaks: Keys | None = None  # keys of pairs or sources that must not be in the training text
    tags: tuple[int, int] = (0, 0)  # tokens of languages before each source and each target
    _seen: set[int] = field(default_factory=set)

    def judge(self, pairs: EncodedPairs) -> Verdicts:
        """Return a ``Verdict`` for each pair. Lengths are in tokens, without tags and eos."""
        config, columns, has_target = self.config, pairs.columns, len(pairs.sides) > 1
        lengths = [np.maximum(side.lengths - 1 - tags, 0) for side, tags in zip(pairs.sides, self.tags)]
        source, target = lengths[0], lengths[-1]
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        filters: dict[Verdict, Flags] = {
            Verdict.invalid: columns["invalid"],
            Verdict.empty_source: columns["blank_source"],
            Verdict.empty_target: columns["blank_target"] & has_target,
            Verdict.too_short: shorter < config.min_length,
            Verdict.too_long: longer > config.max_length,
        }
        if config.max_ratio is not None:
            filters[Verdict.ratio] = longer > config.max_ratio * shorter
        verdicts = np.select(list(filters.values()), list(filters), default=Verdict.kept).astype(np.int8)
        verdicts = np.where(verdicts == Verdict.kept, columns["text_verdict"], verdicts)
        if self.leaks is not None:
            keys = columns["pair_key" if config.drop_leaked is Leaked.pairs else "source_key"]
            verdicts[(verdicts == Verdict.kept) & np.isin(keys, self.leaks)] = Verdict.leaked
        for position in np.flatnonzero(verdicts == Verdict.kept) if config.drop_duplicates else ():
            key = int(columns["pair_key"][position])
            if key in self._seen:
                verdicts[position] = Verdict.duplicate
            self._seen.add(key)  # only pairs that are kept count as seen
        return verdicts

"""Typing errors in the source; the target is unchanged, so the model learns to ignore them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nmt.config.checks import refuse
from nmt.config.option import ShortRepr, option
from nmt.data.augmentations import augmentations


@dataclass
class TyposConfig(ShortRepr):
    """Words of the source are mistyped."""

    words: float = option(0.1, help="Fraction of words with a typo; at least one word per sentence")

    def __post_init__(self) -> None:
        refuse((not 0.0 <= self.words <= 1.0, f"typos.words={self.words} must be at least 0 and at most 1"))


@augmentations.register("typos", TyposConfig)
class Typos:
    """A letter is omitted, doubled, swapped with the next one or replaced by one of the line; a space is added or removed.

    This needs no knowledge of the language or of its keyboards.
    """

    def __init__(self, config: TyposConfig) -> None:
        self._share = config.words

    def __call__(self, source: str, target: str, random: Random) -> tuple[str, str]:
        words = source.split(" ")
        always = random.randrange(len(words))
        written = [
            self._mistyped(word, source, random) if place == always or random.random() < self._share else f"{word} "
            for place, word in enumerate(words)
        ]
        return "".join(written).removesuffix(" "), target

    def _mistyped(self, word: str, line: str, random: Random) -> str:
        """Return a mistyped word with the space after it, which may be removed."""
        if len(word) < 2:
            return f"{word} "
        at = random.randrange(len(word))
        before, letter, after = word[:at], word[at], word[at + 1 :]
        kinds = (
            f"{before}{after} ",
            f"{before}{letter}{letter}{after} ",
            f"{before}{after[:1]}{letter}{after[1:]} ",
            f"{before}{random.choice(line.replace(' ', ''))}{after} ",
            f"{before} {letter}{after} ",
            word,
        )
        return random.choice(kinds)

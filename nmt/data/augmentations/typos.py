"""Typing errors of the source; the target stays, so that the model learns to read past them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nmt.config.checks import refuse
from nmt.config.option import option
from nmt.data.augmentations import augmentations


@dataclass
class TyposConfig:
    """Words of the source are mistyped."""

    words: float = option(0.1, help="share of the words that are mistyped; one of them always is")

    def __post_init__(self) -> None:
        refuse((not 0.0 <= self.words <= 1.0, f"words={self.words} of typos must lie between 0 and 1"))


@augmentations.register("typos", TyposConfig)
class Typos:
    """A letter is left out, written twice, exchanged with the next one or with any of the line, or a space comes in or is
    lost. That needs no knowledge of the language or of its keyboards."""

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
        """With the space after it, which may be missing."""
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

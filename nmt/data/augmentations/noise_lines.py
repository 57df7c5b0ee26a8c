"""Meaningless lines, which a model should copy instead of translating."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from nmt.config.checks import require_positive
from nmt.config.option import ShortRepr, option
from nmt.data.augmentations import augmentations


@dataclass
class NoiseLinesConfig(ShortRepr):
    """Both sides become the same meaningless words."""

    words: int = option(6, help="Maximum number of words per line")
    letters: int = option(5, help="Maximum number of letters per word")

    def __post_init__(self) -> None:
        require_positive("noise_lines", words=self.words, letters=self.letters)


@augmentations.register("noise_lines", NoiseLinesConfig)
class NoiseLines:
    """Uses the letters of the pair, which are in the vocabulary."""

    def __init__(self, config: NoiseLinesConfig) -> None:
        self._words, self._letters = config.words, config.letters

    def __call__(self, source: str, target: str, random: Random) -> tuple[str, str]:
        letters = "".join((source + target).split())
        if not letters:
            return source, target
        words = [
            random.choices(letters, k=random.randint(1, self._letters)) for _ in range(random.randint(1, self._words))
        ]
        line = " ".join(map("".join, words))
        return line, line

"""Noise on the words of a side: dropped, masked and moved words, masked spans, and moved sentences.

Noise on sources serves back-translation (Edunov et al. 2018, arXiv:1808.09381, section 3) and denoising, where source and
target are the same text (Lewis et al. 2020, arXiv:1910.13461, section 2.2; Liu et al. 2020, arXiv:2001.08210, section 2.1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from nmt.config.checks import refuse, require_positive
from nmt.config.choices import Sides
from nmt.config.option import ShortRepr, option
from nmt.data.augmentations import Augmentation, augmentations

MASK = "\u2588"  # a full block: no text has it, so it becomes the unknown token
# After the final punctuation of a sentence, in many scripts.
_SENTENCE_ENDS = re.compile("(?<=[.!?\u2026\u061f\u06d4\u0964\u1362\u0589])\\s+|(?<=[\u3002\uff01\uff0e\uff1f])")


@dataclass(kw_only=True)
class SideOption(ShortRepr):
    """The side that noise changes."""

    side: Sides = option(Sides.source, help="Side to change: source, target or both")


def on_side(config: SideOption, noise: Callable[[str, Random], str]) -> Augmentation:
    """Return an augmentation that changes the lines of a side. A line that would become empty stays unchanged."""

    def change(source: str, target: str, random: Random) -> tuple[str, str]:
        if config.side is not Sides.target:
            source = noise(source, random) or source
        if config.side is not Sides.source:
            target = noise(target, random) or target
        return source, target

    return change


@dataclass
class DropWordsConfig(SideOption):
    """Drop words."""

    words: float = option(0.1, help="Probability of dropping a word")

    def __post_init__(self) -> None:
        _require_probability("drop_words", self.words)


@augmentations.register("drop_words", DropWordsConfig)
def drop_words(config: DropWordsConfig) -> Augmentation:
    def noise(line: str, random: Random) -> str:
        return " ".join(word for word in line.split() if random.random() >= config.words)

    return on_side(config, noise)


@dataclass
class MaskWordsConfig(SideOption):
    """Replace words by a mask."""

    words: float = option(0.1, help="Probability of masking a word")

    def __post_init__(self) -> None:
        _require_probability("mask_words", self.words)


@augmentations.register("mask_words", MaskWordsConfig)
def mask_words(config: MaskWordsConfig) -> Augmentation:
    def noise(line: str, random: Random) -> str:
        return " ".join(MASK if random.random() < config.words else word for word in line.split())

    return on_side(config, noise)


@dataclass
class ShuffleWordsConfig(SideOption):
    """Move words to nearby positions."""

    distance: int = option(3, help="Maximum distance of a word from its old position")

    def __post_init__(self) -> None:
        require_positive("shuffle_words", distance=self.distance)


@augmentations.register("shuffle_words", ShuffleWordsConfig)
def shuffle_words(config: ShuffleWordsConfig) -> Augmentation:
    """Sort by the position plus a number from 0 to distance + 1: Lample et al. 2018, arXiv:1711.00043, section 2.3."""

    def noise(line: str, random: Random) -> str:
        words = line.split()
        keys = [position + random.random() * (config.distance + 1) for position in range(len(words))]
        return " ".join(words[position] for position in sorted(range(len(words)), key=keys.__getitem__))

    return on_side(config, noise)


@dataclass
class MaskSpansConfig(SideOption):
    """Replace each of several spans of words by one mask: the text infilling of BART."""

    words: float = option(0.35, help="Fraction of words in masked spans")
    length: float = option(3.5, help="Mean length of a span in words (Poisson distribution)")

    def __post_init__(self) -> None:
        _require_probability("mask_spans", self.words)
        require_positive("mask_spans", length=self.length)


@augmentations.register("mask_spans", MaskSpansConfig)
def mask_spans(config: MaskSpansConfig) -> Augmentation:
    def noise(line: str, random: Random) -> str:
        words: list[str | None] = [*line.split()]
        count = round(config.words * len(words))
        masked = 0
        while masked < count:
            length = max(1, min(_poisson(config.length, random), count - masked))
            first = random.randrange(len(words) - length + 1)
            if any(word is None for word in words[first : first + length]):
                length, first = 1, random.choice([at for at, word in enumerate(words) if word is not None])
            words[first : first + length] = [None] * length
            masked += length
        shown = [MASK if word is None else word for at, word in enumerate(words) if word or not at or words[at - 1]]
        return " ".join(shown)

    return on_side(config, noise)


@dataclass
class ShuffleSentencesConfig(SideOption):
    """Shuffle the sentences of a line."""


@augmentations.register("shuffle_sentences", ShuffleSentencesConfig)
def shuffle_sentences(config: ShuffleSentencesConfig) -> Augmentation:
    def noise(line: str, random: Random) -> str:
        sentences = [sentence for sentence in _SENTENCE_ENDS.split(line.strip()) if sentence]
        random.shuffle(sentences)
        return " ".join(sentences)

    return on_side(config, noise)


def _poisson(mean: float, random: Random) -> int:
    """Draw from a Poisson distribution: Knuth, The Art of Computer Programming, volume 2, section 3.4.1."""
    product, limit, count = random.random(), math.exp(-mean), 0
    while product > limit:
        product, count = product * random.random(), count + 1
    return count


def _require_probability(name: str, words: float) -> None:
    refuse((not 0.0 < words <= 1.0, f"{name}.words={words} must be above 0 and at most 1"))

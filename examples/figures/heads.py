"""Draw figures 3 to 5 of "Attention Is All You Need" for any model, with the sentences and heads that show each best.

    python examples/figures/heads.py runs/multi30k_raw/run val.en.gz val.de.gz pictures

The pictures show encoder attention between words, each in the layer that shows it best (``--layer`` selects one
layer):

    figure3.svg   the word that attends most to distant words, with all of its heads
    figure4.svg   the two heads that best find the person of "his", "her" or "their", in the clearest sentence
    figure5.svg   the two heads with the most attention within phrases

Phrases follow a rule of thumb, not a parse: an article begins a phrase, and each preposition, conjunction, form of
"be" and punctuation mark is a separate phrase. The word lists are English, so the model must translate from English.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

import nmt
from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, UsageError
from nmt.plotting import LinesPanel, plot_attention_lines
from nmt.reporting.sentence_attention import SentenceAttention

FAR = 5  # minimum distance in words
LONGEST = 16  # maximum length of a drawn sentence in words

PRONOUNS = {"his", "her", "their", "its", "him", "them"}
PEOPLE = set(
    "man men woman women boy boys girl girls child children kid kids person people lady guy player players dog dogs couple "
    "group family baby toddler worker workers team crowd friends students".split()
)
ARTICLES = {"a", "an", "the", "his", "her", "their", "its", "two", "three", "some", "several", "many", "another"}
ALONE = set(
    "in on at with of by from to and or while as is are for near over through into down up along that who".split()
)

Figures = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Found:
    """An attending word of a sentence, and the mean share of its attention that fits a pattern."""

    one: SentenceAttention
    word: int
    strength: float


def words_of(one: SentenceAttention) -> list[str]:
    """Return the words for comparison with the lists: in lower case, without punctuation and the word-start mark."""
    return [word.strip('\u2581 .,!?"').lower() for word in one.columns("encoder")]


def weights_of(one: SentenceAttention, layer: int) -> Figures:
    """Return the encoder attention of a layer, counted from 1. [heads, words, words]"""
    return one.weights["encoder"][layer - 1].astype(np.float64)


def far_words(words: Sequence[str]) -> Mask:
    """Return the mask of content words at least ``FAR`` words apart. [attending word, attended word]"""
    places = np.arange(len(words))
    content = np.array([word.isalpha() and word not in ALONE | ARTICLES for word in words])
    return (np.abs(places[:, None] - places) >= FAR) & content & content[:, None]


def persons_before(words: Sequence[str]) -> Mask:
    """Return the mask from a pronoun to the persons and animals before it. [attending word, attended word]"""
    pronoun = np.array([word in PRONOUNS for word in words])
    person = np.array([word in PEOPLE for word in words])
    return pronoun[:, None] & person & np.tri(len(words), k=-1, dtype=bool)


def same_phrase(words: Sequence[str]) -> Mask:
    """Return the mask from a word to the other words of its phrase. [attending word, attended word]"""
    phrase, numbers = 0, []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        alone = word in ALONE or not word.isalpha()
        phrase += alone or word in ARTICLES or before in ALONE or not before.isalpha()
        numbers.append(phrase)
    found = np.array(numbers)
    return (found[:, None] == found) & ~np.eye(len(words), dtype=bool)


def strengths(
    sentences: Sequence[SentenceAttention], layer: int, mask: Callable[[Sequence[str]], Mask]
) -> tuple[Figures, list[Found]]:
    """Return the mean weight of each head on words that ``mask`` allows, and the attending words.

    Only attending words count for which ``mask`` allows a word. Their strength is the mean over heads.
    """
    total: Figures | float = 0.0
    found: list[Found] = []
    for one in sentences:
        allowed = mask(words_of(one))
        looking = np.flatnonzero(allowed.any(1))
        shares = (weights_of(one, layer) * allowed).sum(2)[:, looking]  # [heads, words with an allowed word]
        total = total + shares.sum(1)
        found += [Found(one, int(word), float(share)) for word, share in zip(looking, shares.mean(0))]
    if not found:
        raise DataError("no sentence of the text has the pattern of the figure; give more sentences")
    return np.asarray(total / len(found)), found


def clearest(found: Sequence[Found], strength: Callable[[Found], float]) -> Found:
    """Return the word with the largest strength among the sentences that are short enough to draw."""
    short = [place for place in found if len(words_of(place.one)) <= LONGEST]
    if not short:
        raise DataError(f"no sentence with the pattern of the figure has at most {LONGEST} words; give more sentences")
    return max(short, key=strength)


def panel(place: Found, layer: int, heads: Sequence[int], *, alone: bool, title: str) -> LinesPanel:
    """Return a panel of these heads, counted from 0. ``alone``: show only the attention of this word."""
    weights = weights_of(place.one, layer)
    chosen = weights[list(heads)]
    if alone:
        chosen = np.where(np.arange(chosen.shape[1])[:, None] == place.word, chosen, 0.0)
    rows, columns = place.one.rows("encoder"), place.one.columns("encoder")
    numbers = [head + 1 for head in heads]
    return LinesPanel(rows, columns, chosen.astype(np.float32), numbers, len(weights), title)


def draw(sentences: Sequence[SentenceAttention], layers: Sequence[int], folder: Path) -> dict[str, str]:
    """Draw each picture in the best of these layers. Return a sentence about each picture, by file name."""
    said = {}

    found = [(layer, clearest(strengths(sentences, layer, far_words)[1], by_mean)) for layer in layers]
    layer, place = max(found, key=lambda one: one[1].strength)
    heads = range(len(weights_of(place.one, layer)))
    shown = panel(place, layer, heads, alone=True, title=f"encoder, layer {layer}")
    plot_attention_lines([shown], folder / "figure3.svg")
    word, far = words_of(place.one)[place.word], f"words at least {FAR} away"
    said["figure3.svg"] = f"layer {layer}, '{word}' gives {place.strength:.2f} of its weight to {far}"

    layer, (first, second), of_heads, places = best_pair(sentences, layers, persons_before)
    place = clearest(places, lambda one: float(_of_word(one, layer, persons_before)[first]))
    panels = [
        panel(place, layer, [first], alone=False, title=f"encoder, layer {layer}, head {first + 1}"),
        panel(place, layer, [first, second], alone=True, title=f"'{words_of(place.one)[place.word]}' alone"),
    ]
    plot_attention_lines(panels, folder / "figure4.svg")
    shares = " and ".join(f"{of_heads[head]:.2f} (head {head + 1})" for head in (first, second))
    said["figure4.svg"] = f"layer {layer}, {len(places)} pronouns give {shares} of their weight to persons before"

    layer, (first, second), of_heads, places = best_pair(sentences, layers, same_phrase)
    place = clearest(places, lambda one: float(_of_sentence(one, layer, same_phrase)[[first, second]].mean()))
    panels = [
        panel(place, layer, [head], alone=False, title=f"encoder, layer {layer}, head {head + 1}")
        for head in (first, second)
    ]
    plot_attention_lines(panels, folder / "figure5.svg")
    shares = " and ".join(f"{of_heads[head]:.2f} (head {head + 1})" for head in (first, second))
    said["figure5.svg"] = f"layer {layer}, words give {shares} of their weight to others of their phrase"
    return said


def by_mean(place: Found) -> float:
    return place.strength


def best_pair(
    sentences: Sequence[SentenceAttention], layers: Sequence[int], mask: Callable[[Sequence[str]], Mask]
) -> tuple[int, tuple[int, int], Figures, list[Found]]:
    """Find the layer whose best two heads give the most weight to words that ``mask`` allows.

    Return the layer, the two heads, the mean weights of all its heads, and the attending words.
    """
    if len(weights_of(sentences[0], layers[0])) < 2:
        raise UsageError("the encoder has one head, but the figure shows two; choose a model with more heads")
    found = []
    for layer in layers:
        of_heads, places = strengths(sentences, layer, mask)
        first, second = (int(head) for head in np.argsort(-of_heads)[:2])
        found.append((layer, (first, second), of_heads, places))
    return max(found, key=lambda one: float(one[2][list(one[1])].sum()))


def _of_word(place: Found, layer: int, mask: Callable[[Sequence[str]], Mask]) -> Figures:
    """Return the weight of each head from this word to words that ``mask`` allows. [heads]"""
    allowed = mask(words_of(place.one))[place.word]
    return np.asarray((weights_of(place.one, layer)[:, place.word] * allowed).sum(1))


def _of_sentence(place: Found, layer: int, mask: Callable[[Sequence[str]], Mask]) -> Figures:
    """Return the mean of that weight over all words of the sentence for which ``mask`` allows a word. [heads]"""
    allowed = mask(words_of(place.one))
    return np.asarray((weights_of(place.one, layer) * allowed).sum(2)[:, allowed.any(1)].mean(1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw figures 3 to 5 of the paper with the heads of a model.")
    parser.add_argument("model", help="run folder or checkpoint of a Transformer that reads English")
    parser.add_argument("sources", type=Path, help="English sentences, one per line")
    parser.add_argument("translations", type=Path, help="their translations, line for line")
    parser.add_argument("output", type=Path, help="folder for the pictures")
    parser.add_argument("--lines", type=int, default=500, help="number of sentences to read (500)")
    parser.add_argument("--layer", type=int, help="encoder layer, counted from 1; default: the best for each picture")
    arguments = parser.parse_args()
    if arguments.lines < 1:
        parser.error(f"--lines must be at least 1, not {arguments.lines}")
    try:
        sources, translations = (
            [line or "" for line in islice(Reading().lines(path), arguments.lines)]
            for path in (arguments.sources, arguments.translations)
        )
        sentences = [one.by_words() for one in nmt.attention(arguments.model, sources, translations) if one.source]
        if not sentences or "encoder" not in sentences[0].weights:
            raise UsageError(
                "the encoder of this model has no attention, or the text has no sentence; name a Transformer"
            )
        layers = len(sentences[0].weights["encoder"])
        chosen = range(1, layers + 1) if arguments.layer is None else [arguments.layer]
        if not all(1 <= layer <= layers for layer in chosen):
            raise UsageError(f"--layer {arguments.layer}: the encoder has layers 1 to {layers}")
        for name, said in draw(sentences, chosen, arguments.output).items():
            print(f"{name}: {said}")
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()

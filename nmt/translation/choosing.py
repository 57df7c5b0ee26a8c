"""Choosing among the translations that a search found, by what a model of the other direction says, or by how alike every
two of them are: sacreBLEU's sentence chrF2 and BLEU, for all pairs at once.

sacreBLEU compares two sentences in about a millisecond; choosing one of a hundred translations takes ten thousand
comparisons. Here the n-grams of all sentences are counted once, in a matrix of sentences by n-grams.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nmt.config.choices import AlignmentKind, LongLines
from nmt.config.commands import GenerateConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.tags import tags_of
from nmt.data.text import PAUSE
from nmt.errors import UsageError
from nmt.scoring import TextOptions, bleu_metric
from nmt.translation.lines import Given, Line, TranslatedText, Translation


def minimum_bayes_risk(
    translations: Iterable[Translation], metric: str, nbest: int, *, posterior: bool
) -> Iterator[Translation]:
    """The translation that is most like all the others: Kumar and Byrne 2004; of samples, Eikema and Aziz 2020.

    Each hypothesis' score becomes its expected similarity, 0 .. 100: the mean over all hypotheses of the line, itself
    included, of how good it is if that one is right. Hypotheses that a search found (``posterior``) weigh as much as the
    model finds them probable among each other; samples weigh alike, since they come as often as they are probable.
    ``nbest``: how many are shown of a line.
    """
    for translation in translations:
        hypotheses = translation.hypotheses
        totals = np.array([one.log_probability for one in hypotheses])
        weights = np.exp(totals - totals.max()) if posterior else np.ones(len(hypotheses))
        shares: dict[str, float] = {}
        for one, weight in zip(hypotheses, weights / weights.sum()):
            shares[one.text] = shares.get(one.text, 0.0) + float(weight)
        expected = dict(zip(shares, SIMILARITIES[metric](list(shares)) @ np.array(list(shares.values()))))
        scored = [dataclasses.replace(one, score=float(expected[one.text])) for one in hypotheses]
        yield dataclasses.replace(translation, hypotheses=_best(scored, nbest))


def tag_of_reverse(ours: LanguagePair, other: LanguagePair, called: str) -> str | None:
    """The language tag by which a model of the other direction translates back, if it has tags; any other model is
    refused. ``called``: the model, for messages."""
    if (other.source_lang, other.target_lang) != (ours.target_lang, ours.source_lang):
        raise UsageError(
            f"{called} translates from {other.source_lang} to {other.target_lang}; a model from {ours.target_lang} to "
            f"{ours.source_lang} is needed"
        )
    return ours.source_lang if ours.source_lang in tags_of(other.source.vocabulary) else None


# Of lines with references and these numbers: their scores, one translation a line.
Score = Callable[[Iterator[Given], Iterator[int], GenerateConfig], Iterator[Translation]]


class ReverseModel:
    """What a model of the other direction finds the source probable of comes first: the noisy channel's view,
    log p(y|x) + weight * log p(x|y), each under the length penalty of the search (Yee et al. 2019, arXiv:1908.05731).

    A line that was translated in parts keeps its order: neither side of it can be read at once. So does one whose end was
    left out, of which the translations say nothing.
    """

    def __init__(
        self, score: Score, weight: float, config: GenerateConfig, *, in_pieces: bool = False, tag: str | None = None
    ) -> None:
        """``config``: how the translations were found; the same searching options score the sources. ``in_pieces``: the
        other model reads pieces as they are, which the texts of translations have joined. ``tag``: of the language that
        it is to translate back into; None: that of its corpus."""
        self._score = score
        self._in_pieces = in_pieces
        self._weight = weight
        self._nbest = config.nbest
        self._config = dataclasses.replace(
            config,
            score_reference=True,
            tag=tag,
            rerank=None,
            rerank_weight=1.0,
            choose_among=None,
            nbest=1,
            print_alignment=AlignmentKind.none,
            long_lines=LongLines.truncate,
            replace_unk=False,
            unk_dictionary=None,
        )

    def __call__(self, translations: Iterable[Translation]) -> Iterator[Translation]:
        waiting, numbers = deque[Translation](), deque[int]()

        def lines() -> Iterator[Given]:
            for translation in translations:
                waiting.append(translation)
                backward = self._backward(translation)
                numbers.extend([translation.number] * len(backward))
                yield from backward
                if translation.closes:
                    yield PAUSE

        def numbered() -> Iterator[int]:
            while True:
                yield numbers.popleft()

        scored = self._score(lines(), numbered(), self._config)
        for first in scored:
            translation = waiting.popleft()
            others = itertools.islice(scored, len(self._backward(translation)) - 1)
            yield self._ranked(translation, [first, *others])

    def _ranked(self, translation: Translation, backward: list[Translation]) -> Translation:
        """What says nothing cannot be read back: it comes last."""
        if not translation.at_once:
            return dataclasses.replace(translation, hypotheses=translation.hypotheses[: self._nbest])
        saying, silent = list[TranslatedText](), list[TranslatedText]()
        for hypothesis, read in zip(translation.hypotheses, backward):
            score = hypothesis.score + self._weight * read.hypotheses[0].score
            if read.source_pieces:
                saying.append(dataclasses.replace(hypothesis, score=score))
            else:
                silent.append(hypothesis)
        ranked = _best(saying, self._nbest) + _best(silent, self._nbest)
        return dataclasses.replace(translation, hypotheses=ranked[: self._nbest])

    def _backward(self, translation: Translation) -> list[Line]:
        """What the other direction is to score: nothing, in a line of its own, of what keeps its order."""
        if not translation.at_once:
            return [Line("")]
        texts = [" ".join(one.pieces) if self._in_pieces else one.text for one in translation.hypotheses]
        return [Line(text, reference=translation.source) for text in texts]


def _best(hypotheses: list[TranslatedText], count: int) -> list[TranslatedText]:
    return sorted(hypotheses, key=lambda one: -one.score)[:count]


Matrix = npt.NDArray[np.float64]

CHARACTERS, BETA_SQUARED = 6, 4.0  # chrF2: n-grams of up to six characters, recall weighs twice
WORDS = 4  # BLEU


def chrf(texts: Sequence[str]) -> Matrix:
    """Popovic 2015; spaces do not count."""
    letters = ["".join(one.split()) for one in texts]
    precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, CHARACTERS + 1):
        matches, totals = _matches(letters, order)
        both = (totals[:, None] > 0) & (totals[None] > 0)
        precisions += np.where(both, matches / np.maximum(totals[:, None], 1), 0.0)
        recalls += np.where(both, matches / np.maximum(totals[None], 1), 0.0)
        orders += both
    precisions, recalls = (part / np.maximum(orders, 1) for part in (precisions, recalls))
    weighted = BETA_SQUARED * precisions + recalls
    result: Matrix = 100 * (1 + BETA_SQUARED) * precisions * recalls / np.where(weighted > 0, weighted, 1.0)
    return result


def bleu(texts: Sequence[str]) -> Matrix:
    """Papineni et al. 2002 over the orders that a sentence has, with sacreBLEU's exponential smoothing."""
    tokenize = bleu_metric(TextOptions()).tokenizer
    words = [tokenize(one.rstrip()).split() for one in texts]
    lengths = np.array([len(one) for one in words], dtype=np.float64)
    logarithms, orders = np.zeros((len(texts), len(texts))), np.zeros((len(texts), 1))
    smoothing: Matrix = np.ones_like(logarithms)
    some = np.zeros_like(logarithms, dtype=bool)
    for order in range(1, WORDS + 1):
        matches, totals = _matches(words, order)
        possible = totals[:, None] > 0
        smoothing = np.where(possible & (matches == 0), 2 * smoothing, smoothing)
        correct = np.where(matches == 0, 1 / smoothing, matches)
        logarithms += np.where(possible, np.log(correct / np.maximum(totals[:, None], 1)), 0.0)
        orders += possible
        some |= matches > 0
    brevity = np.minimum(1.0, np.exp(1 - lengths[None] / np.maximum(lengths[:, None], 1)))
    result: Matrix = 100 * np.where(some, brevity * np.exp(logarithms / np.maximum(orders, 1)), 0.0)
    return result


# Of some texts [n, n]: how good text i is if text j is right, 0 .. 100.
SIMILARITIES: dict[str, Callable[[Sequence[str]], Matrix]] = {"chrf": chrf, "bleu": bleu}


def _matches(texts: Sequence[Sequence[str]], order: int) -> tuple[Matrix, Matrix]:
    """For every two texts the n-grams that both have (the smaller count of each), and how many each text has."""
    counts = [Counter(zip(*(text[start:] for start in range(order)))) for text in texts]
    columns = {ngram: column for column, ngram in enumerate({ngram: None for one in counts for ngram in one})}
    matrix = np.zeros((len(texts), len(columns)))
    for row, one in enumerate(counts):
        for ngram, count in one.items():
            matrix[row, columns[ngram]] = count
    matches = np.array([np.minimum(row, matrix).sum(1) for row in matrix]).reshape(len(texts), len(texts))
    return matches, matrix.sum(1)

"""Choose among the hypotheses of a search: by a reverse model, or by minimum Bayes risk with sentence chrF2 or BLEU.

sacreBLEU compares two sentences in about a millisecond, and choosing among 100 hypotheses takes 10,000 comparisons. Here the
n-grams of all sentences are counted once, in a matrix of sentences by n-grams; the figures are those of sacreBLEU.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from nmt.config.translation import TranslationOptions
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import PAUSE
from nmt.errors import UsageError
from nmt.scoring import TextOptions, bleu_metric
from nmt.translation.lines import Line, LineOrPause, TranslatedText, Translation


def minimum_bayes_risk(
    translations: Iterable[Translation], metric: str, nbest: int, *, posterior: bool
) -> Iterator[Translation]:
    """Rank hypotheses by minimum Bayes risk: Kumar and Byrne 2004; for samples, Eikema and Aziz 2020.

    The score of a hypothesis becomes its expected similarity, 0 .. 100: the mean of its metric against all hypotheses of
    the line, itself included, as references. ``posterior``: references are weighted by their normalized probabilities;
    samples have equal weights. ``nbest``: number of hypotheses of a line that are kept."""
    for translation in translations:
        hypotheses = translation.hypotheses
        totals = np.array([hypothesis.log_probability for hypothesis in hypotheses])
        weights = np.exp(totals - totals.max()) if posterior else np.ones(len(hypotheses))
        shares: dict[str, float] = {}
        for hypothesis, weight in zip(hypotheses, weights / weights.sum()):
            shares[hypothesis.text] = shares.get(hypothesis.text, 0.0) + float(weight)
        expected = dict(zip(shares, SIMILARITIES[metric](list(shares)) @ np.array(list(shares.values()))))
        # Equal sums can differ in their last bits; rounded, such hypotheses keep the order of the search.
        scored = [
            dataclasses.replace(hypothesis, score=round(float(expected[hypothesis.text]), 9))
            for hypothesis in hypotheses
        ]
        yield dataclasses.replace(translation, hypotheses=_best(scored, nbest))


def require_reverse(direction: tuple[str, str], other: LanguagePair, called: str) -> None:
    """Refuse a reverse model that cannot translate back. ``called``: the model, for messages."""
    source, target = direction
    try:
        other.direction(target, source)
    except UsageError as error:
        raise UsageError(f"{called} must translate from {target} to {source}: {error}") from None


# Scores lines with references, which have these numbers: one translation per line.
Score = Callable[[Iterator[LineOrPause], Iterator[int], TranslationOptions], Iterator[Translation]]


class ReverseModel:
    """Rerank hypotheses by the probability of the source given the hypothesis (noisy channel): log p(y|x) + weight * log
    p(x|y), each under the length penalty of the search (Yee et al. 2019, arXiv:1908.05731).

    Lines that were translated in parts or truncated keep their order: no hypothesis can be scored against the whole line.
    """

    def __init__(
        self,
        score: Score,
        weight: float,
        options: TranslationOptions,
        *,
        in_pieces: bool = False,
    ) -> None:
        """``options``: those of the translations; sources are scored with the same search and batches. ``in_pieces``: the
        reverse model reads pieces, not joined text."""
        self._score = score
        self._in_pieces = in_pieces
        self._weight = weight
        self._nbest = options.nbest
        self._options = options.scoring()

    def __call__(self, translations: Iterable[Translation]) -> Iterator[Translation]:
        waiting, numbers = deque[Translation](), deque[int]()

        def lines() -> Iterator[LineOrPause]:
            for translation in translations:
                waiting.append(translation)
                backward = self._backward(translation)
                numbers.extend([translation.number] * len(backward))
                yield from backward
                if translation.ends_window:
                    yield PAUSE

        def numbered() -> Iterator[int]:
            while True:
                yield numbers.popleft()

        scored = self._score(lines(), numbered(), self._options)
        for first in scored:
            translation = waiting.popleft()
            others = itertools.islice(scored, len(self._backward(translation)) - 1)
            yield self._ranked(translation, [first, *others])

    def _ranked(self, translation: Translation, backward: list[Translation]) -> Translation:
        """Rank the hypotheses. Empty ones cannot be scored and come last."""
        if not translation.is_whole:
            return dataclasses.replace(translation, hypotheses=translation.hypotheses[: self._nbest])
        scored, empty = list[TranslatedText](), list[TranslatedText]()
        for hypothesis, backward_translation in zip(translation.hypotheses, backward):
            score = hypothesis.score + self._weight * backward_translation.hypotheses[0].score
            if backward_translation.source_pieces:
                scored.append(dataclasses.replace(hypothesis, score=score))
            else:
                empty.append(hypothesis)
        ranked = _best(scored, self._nbest) + _best(empty, self._nbest)
        return dataclasses.replace(translation, hypotheses=ranked[: self._nbest])

    def _backward(self, translation: Translation) -> list[Line]:
        """Return the lines that the reverse model scores: one empty line if the order is kept."""
        if not translation.is_whole:
            return [Line("")]
        texts = [
            " ".join(hypothesis.pieces) if self._in_pieces else hypothesis.text for hypothesis in translation.hypotheses
        ]
        source, target = translation.direction
        return [Line(text, reference=translation.source, source_lang=target, target_lang=source) for text in texts]


def _best(hypotheses: list[TranslatedText], count: int) -> list[TranslatedText]:
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:count]


Matrix = npt.NDArray[np.float64]

CHARACTERS, BETA_SQUARED = 6, 4.0  # chrF2: n-grams of up to six characters, recall weighs twice
WORDS = 4  # BLEU


def chrf(texts: Sequence[str]) -> Matrix:
    """Popovic 2015, without spaces."""
    letters = ["".join(text.split()) for text in texts]
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
    words = [tokenize(text.rstrip()).split() for text in texts]
    lengths = np.array([len(text) for text in words], dtype=np.float64)
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


# Metrics [n, n]: text i against text j as the reference, 0 .. 100.
SIMILARITIES: dict[str, Callable[[Sequence[str]], Matrix]] = {"chrf": chrf, "bleu": bleu}


def _matches(texts: Sequence[Sequence[str]], order: int) -> tuple[Matrix, Matrix]:
    """Return the clipped n-gram matches of every two texts, and the number of n-grams of each text."""
    counts = [Counter(zip(*(text[start:] for start in range(order)))) for text in texts]
    columns = {ngram: column for column, ngram in enumerate({ngram: None for ngrams in counts for ngram in ngrams})}
    matrix = np.zeros((len(texts), len(columns)))
    for row, ngrams in enumerate(counts):
        for ngram, count in ngrams.items():
            matrix[row, columns[ngram]] = count
    matches = np.array([np.minimum(row, matrix).sum(1) for row in matrix]).reshape(len(texts), len(texts))
    return matches, matrix.sum(1)

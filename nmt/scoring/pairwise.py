"""How alike every two of some sentences are: sacreBLEU's sentence chrF2 and BLEU, for all pairs at once.

sacreBLEU compares two sentences in about a millisecond; choosing one of a hundred translations takes ten thousand
comparisons. Here the n-grams of all sentences are counted once, in a matrix of sentences by n-grams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from nmt.scoring import TextOptions
from nmt.scoring.metrics import bleu_metric

Matrix = npt.NDArray[np.float64]
Similarity = Callable[[Sequence[str]], Matrix]  # [n, n]: how good text i is if text j is right, 0 .. 100

CHARACTERS, BETA_SQUARED = 6, 4.0  # chrF2: n-grams of up to six characters, recall weighs twice
WORDS = 4  # BLEU


def chrf(text: TextOptions) -> Similarity:
    """Popovic 2015; spaces do not count."""

    def similarity(texts: Sequence[str]) -> Matrix:
        lowered = [one.lower() if text.lowercase else one for one in texts]
        letters = ["".join(one.split()) for one in lowered]
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

    return similarity


def bleu(text: TextOptions) -> Similarity:
    """Papineni et al. 2002 over the orders that a sentence has, with sacreBLEU's exponential smoothing."""
    tokenize = bleu_metric(text).tokenizer

    def similarity(texts: Sequence[str]) -> Matrix:
        lowered = [one.lower() if text.lowercase else one for one in texts]
        words = [tokenize(one.rstrip()).split() for one in lowered]
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

    return similarity


SIMILARITIES: dict[str, Callable[[TextOptions], Similarity]] = {"chrf": chrf, "bleu": bleu}


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

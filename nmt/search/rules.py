"""What a translation must not contain, as changes of the scores that a search ranks by.

Repeated n-grams: Paulus et al. 2018, arXiv:1705.04304, section 2.5. Repetition penalty: Keskar et al. 2019,
arXiv:1909.05858, section 4.1, here on log-probabilities, so that it means the same for every model and for ensembles.

Legend: b sentences in the batch, K hypotheses of each, N = b * K, t tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.hypothesis import Floats, Ints
from nmt.data.vocabulary import EOS, UNK
from nmt.search.requests import Phrase, Request
from nmt.search.rules_config import RuleConfig

_INFINITY = float("inf")

Cells = tuple[Ints, Ints]  # rows and tokens, as many of each


def clash(one: Phrase, other: Phrase, n: int) -> bool:
    """Whether no text has both, be they one over the other, without an n-gram that stands in it twice."""
    grams, others = ([phrase[at : at + n] for at in range(len(phrase) - n + 1)] for phrase in (one, other))
    shifts = {here - there for here, gram in enumerate(grams) for there, same in enumerate(others) if gram == same}
    return len(shifts) > 1 or any(  # they overlap in the shared n-gram, and so in all that is side by side then
        token != other[place - shift]
        for shift in shifts
        for place, token in enumerate(one)
        if 0 <= place - shift < len(other)
    )


def fits(phrase: Phrase, prefix: Phrase, n: int) -> bool:
    """Whether a text that begins with ``prefix``, which may repeat itself, can go on to the end of ``phrase`` without
    another n-gram that stood before."""
    known = {prefix[at : at + n] for at in range(len(prefix) - n + 1)}
    for start in range(len(prefix) + 1):
        common = min(len(prefix) - start, len(phrase))
        new = [phrase[at : at + n] for at in range(max(0, len(prefix) - start - n + 1), len(phrase) - n + 1)]
        if prefix[start : start + common] == phrase[:common] and known.isdisjoint(new):
            return True
    return False


@dataclass(frozen=True)
class Changes:
    """What rules say of the scores [N, V] of a step."""

    weaker: Cells | None  # their log-probabilities are multiplied by ``factor``
    factor: float
    forbidden: Cells

    def applied(self, scores: Floats, normaliser: Floats) -> Floats:
        """A copy of scores [N, V], which are log-probabilities once ``normaliser`` [N] is taken away."""
        scores = scores.copy()
        if self.weaker is not None:
            shift = normaliser[self.weaker[0]]
            scores[self.weaker] = np.float32(self.factor) * (scores[self.weaker] - shift) + shift
        scores[self.forbidden] = -_INFINITY
        return scores


class Rules:
    """Follows the hypotheses of a search and says how the scores of their next tokens change."""

    def __init__(self, config: RuleConfig, requests: Sequence[Request] | None, num_sentences: int, width: int) -> None:
        """``width``: hypotheses of a sentence."""
        self._config = config
        self._excluded = [request.exclude for request in requests or ()]
        self._width = width
        self._sentences = list(range(num_sentences))  # those in the batch
        own = [request.min_length for request in requests or ()] or [None] * num_sentences
        shortest = [config.min_len if length is None else length for length in own]
        self.min_len = min(shortest, default=config.min_len)  # of all sentences
        self._shortest = np.array(shortest) if len(set(shortest)) > 1 else None  # [B]
        self._length = 0  # tokens so far
        self._looks_back = config.no_repeat_ngram > 0 or config.repetition_penalty != 1.0 or any(self._excluded)
        self._tokens = np.empty((num_sentences * width, 0), dtype=np.int64)  # [N, t]

    @property
    def any(self) -> bool:
        """Whether scores are changed at all."""
        return self._looks_back or self._config.forbid_unknown or self._shortest is not None

    def changes(self) -> Changes:
        """Of the scores of the next token."""
        count, factor, weaker = len(self._sentences) * self._width, self._config.repetition_penalty, None
        if factor != 1.0:
            rows = np.repeat(np.arange(count), self._tokens.shape[1])
            weaker = rows, self._tokens.ravel()
        forbidden = [self._repeated_ngrams(self._config.no_repeat_ngram)] if self._config.no_repeat_ngram else []
        for place, sentence in enumerate(self._sentences if any(self._excluded) else ()):
            forbidden.append(self._begun_phrases(place, self._excluded[sentence]))
        if self._config.forbid_unknown:
            forbidden.append((np.arange(count), np.full(count, UNK)))
        if self._shortest is not None:
            too_short = np.flatnonzero((self._length < self._shortest[self._sentences]).repeat(self._width))
            forbidden.append((too_short, np.full(len(too_short), EOS)))
        rows, tokens = (np.concatenate([np.empty(0, dtype=np.int64), *side]) for side in _columns(forbidden))
        return Changes(weaker, factor, (rows, tokens))

    def follow(self, tokens: Ints, rows: Ints | None = None, staying: Ints | None = None) -> None:
        """The hypotheses of the next step are ``rows`` [N'] of these (default: the same) with one more token each [N'],
        and belong to the sentences ``staying`` (positions in b; default: all)."""
        if staying is not None and len(staying) < len(self._sentences):
            self._sentences = [self._sentences[place] for place in staying.tolist()]
        self._length += 1
        if self._looks_back:
            before = self._tokens if rows is None else self._tokens[rows]
            self._tokens = np.concatenate([before, tokens[:, None]], 1)

    def _repeated_ngrams(self, n: int) -> Cells:
        length = self._tokens.shape[1]
        following = self._tokens[:, n - 1 :]  # [N, length - n + 1]
        repeated = np.ones_like(following, dtype=bool)
        for offset in range(n - 1 if length >= n else 0):
            begun = self._tokens[:, length - n + 1 + offset, None]
            repeated &= self._tokens[:, offset : offset + following.shape[1]] == begun
        rows, columns = repeated.nonzero()
        return rows, following[rows, columns]

    def _begun_phrases(self, place: int, phrases: Sequence[Phrase]) -> Cells:
        """The last tokens of phrases to be left out, where all but these are written."""
        rows, tokens, first = list[int](), list[int](), place * self._width
        for row, written in enumerate(self._tokens[first : first + self._width].tolist(), first):
            for phrase in phrases:
                begun = len(phrase) - 1
                if begun == 0 or tuple(written[-begun:]) == phrase[:-1]:
                    rows.append(row)
                    tokens.append(phrase[-1])
        return np.array(rows, dtype=np.int64), np.array(tokens, dtype=np.int64)


def _columns(cells: Sequence[Cells]) -> tuple[list[Ints], list[Ints]]:
    return [rows for rows, _ in cells], [tokens for _, tokens in cells]

"""Length limits, prefixes, and rules on the content of translations, step by step in a search.

Rules change the scores that a search ranks by. Repeated n-grams: Paulus et al. 2018, arXiv:1705.04304, section 2.5.
Repetition penalty: Keskar et al. 2019, arXiv:1909.05858, section 4.1, here on log-probabilities, so that it means the same
for every model and for ensembles.

Legend: B sentences, b of them still in the batch, K hypotheses of each, N = b * K, t tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.data.vocabulary import EOS, UNK, Flags, Ints
from nmt.search.config import CommonSearchConfig
from nmt.search.requests import Phrase, Request, Sentences

_UNLIMITED = 2.0**31  # pieces


class ForcedTokens:
    """Forced tokens: those of the sentence's prefix, and eos at the length limit."""

    def __init__(self, batch: Sentences, config: CommonSearchConfig, of_model: Ints | None) -> None:
        """``of_model`` [B]: the limits of the model; None: it has none."""
        source_lengths, own_requests = batch.lengths, batch.requests or ()
        prefixes = [request.prefix for request in own_requests]
        self.longest = max(map(len, prefixes), default=0)  # prefix
        rows = [[*prefix, *[-1] * (self.longest - len(prefix))] for prefix in prefixes]
        self.prefixes = np.array(rows, dtype=np.int64).reshape(len(rows), self.longest)  # [B, longest]
        # max_len_a * source length + max_len_b pieces, then eos: of the sentence's own length, never of its batch
        pieces = (source_lengths - 1).astype(np.float64) * config.max_len_a + config.max_len_b
        limits = np.floor(pieces).clip(0, _UNLIMITED).astype(np.int64) + 1
        if own_requests:
            own = np.array([0 if request.max_length is None else request.max_length + 1 for request in own_requests])
            least = np.array([max(len(request.prefix), request.min_length or 0) + 1 for request in own_requests])
            limits = np.maximum(np.where(own > 0, own, limits), least)
        # [B] most tokens, eos included
        self.limits = limits if of_model is None else np.minimum(limits, of_model - batch.started)
        self.lowest = int(self.limits.min())

    def tokens(self, sentences: Ints, length: int) -> Ints | None:
        """[b] the forced token at position ``length`` (from 1) of these sentences, -1 where the search chooses; None: none
        is forced."""
        if self.longest < length < self.lowest:
            return None
        at_limit = self.limits[sentences] == length
        if length <= self.longest:
            return np.where(at_limit, EOS, self.prefixes[sentences, length - 1])
        return np.where(at_limit, EOS, -1) if at_limit.any() else None


def or_eos(tokens: Ints | None, stuck: Flags) -> Ints | None:
    """Return forced tokens [b], with eos for a sentence that is ``stuck`` [b] without a forced token."""
    if tokens is None:
        return np.where(stuck, EOS, -1) if stuck.any() else None
    return np.where(stuck & (tokens < 0), EOS, tokens)


@dataclass(frozen=True)
class Changes:
    """Changes of the scores [N, V] of a step."""

    weaker: Any  # [2, n] rows and tokens whose log-probabilities are multiplied by ``factor``, or None
    factor: float
    forbidden: Any  # [2, n]

    def placed(self, place: Callable[[Ints], Any]) -> Changes:
        """Return the changes for scores in another place, such as the memory of a device."""
        return Changes(None if self.weaker is None else place(self.weaker), self.factor, place(self.forbidden))

    def apply(self, scores: Any, normaliser: Any) -> None:
        """Change scores [N, V], of NumPy or torch, in place. They are log-probabilities after ``normaliser`` [N] is
        subtracted."""
        if self.weaker is not None:
            rows, tokens = self.weaker
            shift = normaliser[rows]
            scores[rows, tokens] = self.factor * (scores[rows, tokens] - shift) + shift
        rows, tokens = self.forbidden
        scores[rows, tokens] = -np.inf


class Rules:
    """Follow the hypotheses of a search, and change the scores of their next tokens."""

    def __init__(
        self, config: CommonSearchConfig, requests: Sequence[Request] | None, num_sentences: int, width: int
    ) -> None:
        """``width``: number of hypotheses of a sentence."""
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
        """Whether any rule changes scores."""
        return self._looks_back or self._config.forbid_unknown or self._shortest is not None

    def changes(self) -> Changes:
        """Return the changes of the scores of the next token."""
        config, count = self._config, len(self._sentences) * self._width
        weaker, every = None, np.arange(count)
        if config.repetition_penalty != 1.0:
            weaker = np.stack([every.repeat(self._tokens.shape[1]), self._tokens.ravel()])
        forbidden = [np.empty((2, 0), dtype=np.int64)]
        if config.no_repeat_ngram:
            forbidden.append(self._repeated_ngrams(config.no_repeat_ngram))
        if any(self._excluded):
            forbidden.append(self._begun_phrases())
        if config.forbid_unknown:
            forbidden.append(np.stack([every, np.full(count, UNK)]))
        if self._shortest is not None:
            too_short = np.flatnonzero((self._length < self._shortest[self._sentences]).repeat(self._width))
            forbidden.append(np.stack([too_short, np.full(len(too_short), EOS)]))
        return Changes(weaker, config.repetition_penalty, np.hstack(forbidden))

    def follow(self, tokens: Ints, rows: Ints, staying: Ints) -> None:
        """Continue with the hypotheses ``rows`` [N'], each with one more of ``tokens`` [N'], of the sentences ``staying``
        (positions in b)."""
        self._sentences = [self._sentences[place] for place in staying.tolist()]
        self._length += 1
        if self._looks_back:
            self._tokens = np.concatenate([self._tokens[rows], tokens[:, None]], 1)

    def _repeated_ngrams(self, n: int) -> Ints:
        length = self._tokens.shape[1]
        following = self._tokens[:, n - 1 :]  # [N, length - n + 1]
        repeated = np.ones_like(following, dtype=bool)
        for offset in range(n - 1 if length >= n else 0):
            begun = self._tokens[:, length - n + 1 + offset, None]
            repeated &= self._tokens[:, offset : offset + following.shape[1]] == begun
        rows, columns = repeated.nonzero()
        return np.stack([rows, following[rows, columns]])

    def _begun_phrases(self) -> Ints:
        """Return the last token of each excluded phrase whose other tokens are written."""
        cells = [
            (row, phrase[-1])
            for row, written in enumerate(self._tokens.tolist())
            for phrase in self._excluded[self._sentences[row // self._width]]
            if tuple(written[len(written) - len(phrase) + 1 :]) == phrase[:-1]
        ]
        return np.array(cells, dtype=np.int64).reshape(-1, 2).T


def clash(first: Phrase, second: Phrase, n: int) -> bool:
    """Return whether every text that contains both phrases, overlapping or not, repeats an n-gram."""
    grams, others = ([phrase[at : at + n] for at in range(len(phrase) - n + 1)] for phrase in (first, second))
    shifts = {here - there for here, gram in enumerate(grams) for there, same in enumerate(others) if gram == same}
    return len(shifts) > 1 or any(  # they overlap in the shared n-gram, and so in all that is side by side then
        token != second[place - shift]
        for shift in shifts
        for place, token in enumerate(first)
        if 0 <= place - shift < len(second)
    )


def fits(phrase: Phrase, prefix: Phrase, n: int) -> bool:
    """Return whether a text that begins with ``prefix`` can contain ``phrase`` without repeating an n-gram. Repetitions
    within the prefix do not count."""
    known = {prefix[at : at + n] for at in range(len(prefix) - n + 1)}
    for start in range(len(prefix) + 1):
        common = min(len(prefix) - start, len(phrase))
        new = [phrase[at : at + n] for at in range(max(0, len(prefix) - start - n + 1), len(phrase) - n + 1)]
        if prefix[start : start + common] == phrase[:common] and known.isdisjoint(new):
            return True
    return False

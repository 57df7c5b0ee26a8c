"""What a translation must not contain, as changes of the scores that a search ranks by.

Repeated n-grams: Paulus et al. 2018, arXiv:1705.04304, section 2.5. Repetition penalty: Keskar et al. 2019,
arXiv:1909.05858, section 4.1, here on log-probabilities, so that it means the same for every model and for ensembles.

Legend: b sentences in the batch, K hypotheses of each, N = b * K, t tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, UNK
from nmt.search.requests import Phrase, Request
from nmt.search.rules_config import RuleConfig

_INFINITY = float("inf")


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


class Rules:
    """Follows the hypotheses of a search and changes the scores of their next tokens."""

    def __init__(
        self,
        config: RuleConfig,
        requests: Sequence[Request] | None,
        num_sentences: int,
        width: int,
        device: torch.device,
    ) -> None:
        """``width``: hypotheses of a sentence."""
        self._config = config
        self._excluded = [request.exclude for request in requests or ()]
        self._width = width
        self._sentences = list(range(num_sentences))  # those in the batch
        own = [request.min_length for request in requests or ()] or [None] * num_sentences
        shortest = [config.min_len if length is None else length for length in own]
        self.min_len = min(shortest, default=config.min_len)  # of all sentences
        self._shortest = torch.tensor(shortest, device=device) if len(set(shortest)) > 1 else None  # [B]
        self._length = 0  # tokens so far
        self._looks_back = config.no_repeat_ngram > 0 or config.repetition_penalty != 1.0 or any(self._excluded)
        self._tokens = torch.empty(num_sentences * width, 0, dtype=torch.long, device=device)  # [N, t]

    @property
    def any(self) -> bool:
        """Whether scores are changed at all."""
        return self._looks_back or self._config.forbid_unknown or self._shortest is not None

    def changed(self, scores: Tensor, normaliser: Tensor | float = 0.0) -> Tensor:
        """A copy of scores [N, V], which are log-probabilities once ``normaliser`` [N] is taken away."""
        scores = scores.clone()
        if self._config.repetition_penalty != 1.0 and self._tokens.size(1):
            shift = normaliser[:, None] if isinstance(normaliser, Tensor) else normaliser
            log_probabilities = scores.gather(1, self._tokens) - shift
            scores.scatter_(1, self._tokens, self._config.repetition_penalty * log_probabilities + shift)
        if self._config.no_repeat_ngram:
            self._forbid_ngrams(scores, self._config.no_repeat_ngram)
        for place, sentence in enumerate(self._sentences if any(self._excluded) else ()):
            if self._excluded[sentence]:
                self._forbid_phrases(scores, place, self._excluded[sentence])
        if self._config.forbid_unknown:
            scores[:, UNK] = -_INFINITY
        if self._shortest is not None:
            too_short = (self._length < self._shortest[self._sentences]).repeat_interleave(self._width)
            scores[:, EOS].masked_fill_(too_short, -_INFINITY)
        return scores

    def follow(self, tokens: Tensor, rows: Tensor | None = None, staying: Tensor | None = None) -> None:
        """The hypotheses of the next step are ``rows`` [N'] of these (default: the same) with one more token each [N'],
        and belong to the sentences ``staying`` (positions in b; default: all)."""
        if staying is not None and len(staying) < len(self._sentences):
            self._sentences = [self._sentences[place] for place in staying.tolist()]
        self._length += 1
        if self._looks_back:
            before = self._tokens if rows is None else self._tokens[rows]
            self._tokens = torch.cat([before, tokens[:, None]], 1)

    def _forbid_ngrams(self, scores: Tensor, n: int) -> None:
        length = self._tokens.size(1)
        if length < n:
            return
        following = self._tokens[:, n - 1 :]  # [N, length - n + 1]
        repeated = torch.ones_like(following, dtype=torch.bool)
        for offset in range(n - 1):
            begun = self._tokens[:, length - n + 1 + offset, None]
            repeated &= self._tokens[:, offset : offset + following.size(1)] == begun
        rows, columns = repeated.nonzero(as_tuple=True)
        scores[rows, following[rows, columns]] = -_INFINITY

    def _forbid_phrases(self, scores: Tensor, place: int, phrases: Sequence[Phrase]) -> None:
        first = place * self._width
        for row, written in enumerate(self._tokens[first : first + self._width].tolist(), first):
            for phrase in phrases:
                begun = len(phrase) - 1
                if begun == 0 or tuple(written[-begun:]) == phrase[:-1]:
                    scores[row, phrase[-1]] = -_INFINITY

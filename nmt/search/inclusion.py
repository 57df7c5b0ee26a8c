"""Translations that must contain given phrases: dynamic beam allocation, Post and Vilar 2018, arXiv:1804.06609.

A beam that only ranks by probability would never write an improbable phrase. Here the tokens that begin or continue a
phrase are always candidates. The *bank* of a hypothesis is the number of phrase tokens that it has written. The slots of a
sentence are divided among the banks, so that more probable hypotheses do not displace those that are writing a phrase. Only
hypotheses with all phrases may end.

Legend: b sentences in the batch, K beam, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nmt.data.vocabulary import BOS, EOS, PAD, Floats, Ints
from nmt.search.decoding import Candidates, Scores
from nmt.search.history import Finished
from nmt.search.requests import Phrase, Request

_INFINITY = float("inf")


@dataclass(frozen=True)
class PhraseProgress:
    """The phrases of its sentence that a hypothesis has written or begun."""

    occurrences: tuple[int, ...]  # how often the hypothesis contains each phrase
    partial: frozenset[tuple[int, int]] = frozenset()  # (phrase, tokens of it) that its last tokens begin


class Phrases:
    """The phrases of a sentence, each with the number of times that it is required."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        counts = Counter(phrases)
        self.phrases, self.required = list(counts), list(counts.values())
        self.bank_of_all = sum(len(phrase) * required for phrase, required in counts.items())

    def start(self) -> PhraseProgress:
        return PhraseProgress((0,) * len(self.phrases))

    def advance(self, progress: PhraseProgress, token: int) -> PhraseProgress:
        occurrences, partial = list(progress.occurrences), set()
        for phrase, length in [*progress.partial, *((phrase, 0) for phrase in range(len(self.phrases)))]:
            if self.phrases[phrase][length] != token:
                continue
            if length + 1 == len(self.phrases[phrase]):
                occurrences[phrase] += 1
            else:
                partial.add((phrase, length + 1))
        return PhraseProgress(tuple(occurrences), frozenset(partial))

    def bank(self, progress: PhraseProgress) -> int:
        """Return the number of tokens of complete phrases, and of the longest phrase that is begun."""
        whole = sum(
            min(occurrences, required) * len(phrase)
            for occurrences, required, phrase in zip(progress.occurrences, self.required, self.phrases)
        )
        partial = (
            length for phrase, length in progress.partial if progress.occurrences[phrase] < self.required[phrase]
        )
        return whole + max(partial, default=0)

    def complete(self, progress: PhraseProgress) -> bool:
        return all(occurrences >= required for occurrences, required in zip(progress.occurrences, self.required))

    def next_tokens(self, progress: PhraseProgress) -> set[int]:
        """Return the tokens that begin or continue a phrase that is still missing."""
        missing = {n for n, required in enumerate(self.required) if progress.occurrences[n] < required}
        continuing = {self.phrases[phrase][length] for phrase, length in progress.partial if phrase in missing}
        return continuing | {self.phrases[phrase][0] for phrase in missing}


class _Continuation(NamedTuple):
    """A continuation. The order of the fields sorts the best first, then by hypothesis, then by token."""

    cost: float  # the negated total
    parent: int
    token: int
    bank: int


class Inclusion:
    """Follow the hypotheses of a beam search, and choose the continuations of sentences with required phrases."""

    def __init__(self, requests: Sequence[Request] | None, width: int, finished: Finished) -> None:
        self._width = width
        self._finished = finished
        self._phrases = [Phrases(request.include) for request in requests or ()]
        self._progress = [[phrases.start()] * width for phrases in self._phrases]  # of the sentences in the batch
        self._sentences = list(range(len(self._phrases)))
        self.any = any(request.include for request in requests or ())

    def choose(self, candidates: Candidates, scores: Scores, totals: Floats, *, eos_allowed: bool) -> Candidates:
        """Replace the candidates [b, 2K] of sentences with phrases. ``totals`` [b, K]: before the step."""
        places = [place for place, sentence in enumerate(self._sentences) if self._phrases[sentence].phrases]
        if not places:
            return candidates
        chosen = candidates.each(np.copy)
        for place in places:
            row = _two_beams(self._options(place, candidates, scores, totals[place], eos_allowed), self._width)
            row += [_Continuation(_INFINITY, 0, PAD, 0)] * (2 * self._width - len(row))
            costs, chosen.parents[place], chosen.tokens[place], _ = zip(*row)
            chosen.totals[place] = np.negative(costs)
            rows = chosen.parents[place] + place * self._width
            chosen.log_probabilities[place] = scores.log_probability(chosen.tokens[place], rows)
        return chosen

    def endings(self, totals: Floats) -> Floats:
        """Return totals [b, K] of hypotheses that the length limit ends. If a sentence has a hypothesis with all phrases,
        or a finished one, those without all phrases get -inf."""
        kept = totals.copy()
        for place, sentence in enumerate(self._sentences):
            phrases = self._phrases[sentence]
            if not phrases.phrases:
                continue
            complete = [phrases.complete(progress) for progress in self._progress[place]]
            alive = [is_complete and total > -_INFINITY for is_complete, total in zip(complete, totals[place].tolist())]
            if self._finished.has_hypothesis(sentence) or any(alive):
                kept[place, [slot for slot, is_complete in enumerate(complete) if not is_complete]] = -_INFINITY
        return kept

    def follow(self, chosen: Candidates, staying: Ints) -> None:
        """Continue with ``chosen`` [b, K], in the sentences ``staying`` (positions in b)."""
        before, self._progress = self._progress, []
        for place in staying.tolist():
            phrases, progress = self._phrases[self._sentences[place]], before[place]
            pairs = zip(chosen.parents[place].tolist(), chosen.tokens[place].tolist())
            self._progress.append([phrases.advance(progress[parent], token) for parent, token in pairs])
        self._sentences = [self._sentences[place] for place in staying.tolist()]

    def _options(
        self, place: int, candidates: Candidates, scores: Scores, totals: Floats, eos_allowed: bool
    ) -> list[_Continuation]:
        """Return, best first, the candidates of the search, the best continuation of each hypothesis, and the tokens of
        phrases."""
        phrases, progress = self._phrases[self._sentences[place]], self._progress[place]
        pairs = set(zip(candidates.parents[place].tolist(), candidates.tokens[place].tolist()))
        rows = scores.ranked(place * self._width, (place + 1) * self._width)  # [K, V]
        may_end = [eos_allowed and phrases.complete(hypothesis) for hypothesis in progress]
        allowed = rows.copy()
        allowed[:, [PAD, BOS]] = -_INFINITY
        allowed[np.logical_not(may_end), EOS] = -_INFINITY
        pairs |= set(enumerate(allowed.argmax(1).tolist()))
        pairs |= {(slot, token) for slot in range(self._width) for token in phrases.next_tokens(progress[slot])}
        ordered = sorted(pairs)
        parents, tokens = (np.array(side) for side in zip(*ordered))
        costs = (-(rows[parents, tokens] + totals[parents])).tolist()
        options = []
        for cost, (parent, token) in zip(costs, ordered):
            if cost == _INFINITY or token in (PAD, BOS) or (token == EOS and not may_end[parent]):
                continue
            bank = phrases.bank(phrases.advance(progress[parent], token))
            options.append(_Continuation(cost, parent, token, min(bank, phrases.bank_of_all)))
        return sorted(options)


def _two_beams(options: Sequence[_Continuation], width: int) -> list[_Continuation]:
    """Return the choice of a beam, then its choice among the rest: unfinished hypotheses for the slots of finished ones."""
    first = _allocate(options, width)
    chosen = set(first)
    return first + _allocate([option for option in options if option not in chosen and option.token != EOS], width)


def _allocate(options: Sequence[_Continuation], width: int) -> list[_Continuation]:
    """Return a continuation for each slot, best first. Each bank gets an equal share, at least one slot; the fullest banks
    get the remaining slots, and the only ones if there are more banks than slots."""
    banks: dict[int, list[_Continuation]] = {}
    for option in options:
        banks.setdefault(option.bank, []).append(option)
    fullest_first = [banks[bank] for bank in sorted(banks, reverse=True)]
    share = max(1, width // max(1, len(banks)))
    chosen: list[_Continuation] = []
    for of_bank in fullest_first:
        chosen += of_bank[: min(share, width - len(chosen))]
    for of_bank in fullest_first:
        chosen += of_bank[share : share + width - len(chosen)]
    return sorted(chosen)

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

    written: tuple[int, ...]  # how often each phrase stands in it
    begun: frozenset[tuple[int, int]] = frozenset()  # (phrase, tokens of it) that its last tokens begin


class Phrases:
    """The phrases of a sentence, each with the number of times that it is required."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        counts = Counter(phrases)
        self.phrases, self.wanted = list(counts), list(counts.values())
        self.bank_of_all = sum(len(phrase) * wanted for phrase, wanted in counts.items())

    def start(self) -> PhraseProgress:
        return PhraseProgress((0,) * len(self.phrases))

    def after(self, progress: PhraseProgress, token: int) -> PhraseProgress:
        written, begun = list(progress.written), set()
        for phrase, length in [*progress.begun, *((phrase, 0) for phrase in range(len(self.phrases)))]:
            if self.phrases[phrase][length] != token:
                continue
            if length + 1 == len(self.phrases[phrase]):
                written[phrase] += 1
            else:
                begun.add((phrase, length + 1))
        return PhraseProgress(tuple(written), frozenset(begun))

    def bank(self, progress: PhraseProgress) -> int:
        """Return the number of tokens of complete phrases, and of the longest phrase that is begun."""
        whole = sum(
            min(written, wanted) * len(phrase)
            for written, wanted, phrase in zip(progress.written, self.wanted, self.phrases)
        )
        begun = (length for phrase, length in progress.begun if progress.written[phrase] < self.wanted[phrase])
        return whole + max(begun, default=0)

    def complete(self, progress: PhraseProgress) -> bool:
        return all(written >= wanted for written, wanted in zip(progress.written, self.wanted))

    def next_tokens(self, progress: PhraseProgress) -> set[int]:
        """Return the tokens that begin or continue a phrase that is still missing."""
        missing = {n for n, wanted in enumerate(self.wanted) if progress.written[n] < wanted}
        continuing = {self.phrases[phrase][length] for phrase, length in progress.begun if phrase in missing}
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

    def choose(self, found: Candidates, scores: Scores, totals: Floats, *, eos_allowed: bool) -> Candidates:
        """Return candidates [b, 2K]: those of ``found``, replaced for sentences with phrases. ``totals`` [b, K]: before the
        step."""
        places = [place for place, sentence in enumerate(self._sentences) if self._phrases[sentence].phrases]
        if not places:
            return found
        chosen = found.each(np.copy)
        for place in places:
            row = _two_beams(self._options(place, found, scores, totals[place], eos_allowed), self._width)
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
            alive = [done and total > -_INFINITY for done, total in zip(complete, totals[place].tolist())]
            if self._finished.found(sentence) or any(alive):
                kept[place, [slot for slot, done in enumerate(complete) if not done]] = -_INFINITY
        return kept

    def follow(self, chosen: Candidates, staying: Ints) -> None:
        """Continue with ``chosen`` [b, K], in the sentences ``staying`` (positions in b)."""
        before, self._progress = self._progress, []
        for place in staying.tolist():
            phrases, progress = self._phrases[self._sentences[place]], before[place]
            pairs = zip(chosen.parents[place].tolist(), chosen.tokens[place].tolist())
            self._progress.append([phrases.after(progress[parent], token) for parent, token in pairs])
        self._sentences = [self._sentences[place] for place in staying.tolist()]

    def _options(
        self, place: int, found: Candidates, scores: Scores, totals: Floats, eos_allowed: bool
    ) -> list[_Continuation]:
        """Return, best first, the candidates of the search, the best continuation of each hypothesis, and the tokens of
        phrases."""
        phrases, progress = self._phrases[self._sentences[place]], self._progress[place]
        pairs = set(zip(found.parents[place].tolist(), found.tokens[place].tolist()))
        rows = scores.ranked(place * self._width, (place + 1) * self._width)  # [K, V]
        may_end = [eos_allowed and phrases.complete(one) for one in progress]
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
            bank = phrases.bank(phrases.after(progress[parent], token))
            options.append(_Continuation(cost, parent, token, min(bank, phrases.bank_of_all)))
        return sorted(options)


def _two_beams(options: Sequence[_Continuation], width: int) -> list[_Continuation]:
    """Return the choice of a beam, then its choice among the rest: unfinished hypotheses for the slots of finished ones."""
    first = _allocate(options, width)
    taken = set(first)
    return first + _allocate([option for option in options if option not in taken and option.token != EOS], width)


def _allocate(options: Sequence[_Continuation], width: int) -> list[_Continuation]:
    """Return a continuation for each slot, best first. Each bank gets an equal share, at least one slot; the fullest banks
    get the remaining slots, and the only ones if there are more banks than slots."""
    banks: dict[int, list[_Continuation]] = {}
    for option in options:
        banks.setdefault(option.bank, []).append(option)
    fullest_first = [banks[bank] for bank in sorted(banks, reverse=True)]
    share = max(1, width // max(1, len(banks)))
    taken: list[_Continuation] = []
    for of_bank in fullest_first:
        taken += of_bank[: min(share, width - len(taken))]
    for of_bank in fullest_first:
        taken += of_bank[share : share + width - len(taken)]
    return sorted(taken)

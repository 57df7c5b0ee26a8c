"""Translations that must contain given phrases: dynamic beam allocation, Post and Vilar 2018, arXiv:1804.06609.

A beam that only ranks by probability would never write an improbable phrase. Here the tokens that begin or continue a
phrase are always candidates, and the slots of a sentence are shared out among hypotheses by how many tokens of the
phrases they have (its *bank*), so that those on their way to a phrase do not drown. Eos is for hypotheses that have all.

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
class Progress:
    """What a hypothesis has of the phrases of its sentence."""

    written: tuple[int, ...]  # how often each phrase stands in it
    begun: frozenset[tuple[int, int]] = frozenset()  # (phrase, tokens of it) that its last tokens begin


class Phrases:
    """The phrases of one sentence, each with the number of times it is wanted."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        counts = Counter(phrases)
        self.phrases, self.wanted = list(counts), list(counts.values())
        self.bank_of_all = sum(len(phrase) * wanted for phrase, wanted in counts.items())

    def start(self) -> Progress:
        return Progress((0,) * len(self.phrases))

    def after(self, progress: Progress, token: int) -> Progress:
        written, begun = list(progress.written), set()
        for phrase, length in [*progress.begun, *((phrase, 0) for phrase in range(len(self.phrases)))]:
            if self.phrases[phrase][length] != token:
                continue
            if length + 1 == len(self.phrases[phrase]):
                written[phrase] += 1
            else:
                begun.add((phrase, length + 1))
        return Progress(tuple(written), frozenset(begun))

    def bank(self, progress: Progress) -> int:
        """Tokens of phrases that count: those of whole ones, and of one that is begun."""
        whole = sum(
            min(written, wanted) * len(phrase)
            for written, wanted, phrase in zip(progress.written, self.wanted, self.phrases)
        )
        begun = (length for phrase, length in progress.begun if progress.written[phrase] < self.wanted[phrase])
        return whole + max(begun, default=0)

    def complete(self, progress: Progress) -> bool:
        return all(written >= wanted for written, wanted in zip(progress.written, self.wanted))

    def next_tokens(self, progress: Progress) -> set[int]:
        """Those that begin or continue a phrase that is still missing."""
        missing = {n for n, wanted in enumerate(self.wanted) if progress.written[n] < wanted}
        continuing = {self.phrases[phrase][length] for phrase, length in progress.begun if phrase in missing}
        return continuing | {self.phrases[phrase][0] for phrase in missing}


class _Option(NamedTuple):
    """One continuation, as options are ordered: the best first, then by hypothesis, then by token."""

    cost: float  # the total, turned round
    parent: int
    token: int
    bank: int


class Inclusion:
    """Follows the hypotheses of a beam search and chooses their continuations where phrases are asked for."""

    def __init__(self, requests: Sequence[Request] | None, width: int, finished: Finished) -> None:
        self._width = width
        self._finished = finished
        self._phrases = [Phrases(request.include) for request in requests or ()]
        self._progress = [[phrases.start()] * width for phrases in self._phrases]  # of the sentences in the batch
        self._sentences = list(range(len(self._phrases)))
        self.any = any(request.include for request in requests or ())

    def choose(self, found: Candidates, scores: Scores, totals: Floats, *, eos_allowed: bool) -> Candidates:
        """The candidates [b, 2K], others where a sentence has phrases; ``totals`` [b, K] before the step."""
        places = [place for place, sentence in enumerate(self._sentences) if self._phrases[sentence].phrases]
        if not places:
            return found
        chosen = found.each(np.copy)
        for place in places:
            row = _two_beams(self._options(place, found, scores, totals[place], eos_allowed), self._width)
            row += [_Option(_INFINITY, 0, PAD, 0)] * (2 * self._width - len(row))
            costs, chosen.parents[place], chosen.tokens[place], _ = zip(*row)
            chosen.totals[place] = np.negative(costs)
            rows = chosen.parents[place] + place * self._width
            chosen.log_probabilities[place] = scores.log_probability(chosen.tokens[place], rows)
        return chosen

    def endings(self, totals: Floats) -> Floats:
        """Totals [b, K] of hypotheses that the length limit ends; -inf for those without all phrases, where the sentence
        has one with all, or a finished one already."""
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
        """The beam goes on with ``chosen`` [b, K], in the sentences ``staying`` (positions in b)."""
        before, self._progress = self._progress, []
        for place in staying.tolist():
            phrases, progress = self._phrases[self._sentences[place]], before[place]
            pairs = zip(chosen.parents[place].tolist(), chosen.tokens[place].tolist())
            self._progress.append([phrases.after(progress[parent], token) for parent, token in pairs])
        self._sentences = [self._sentences[place] for place in staying.tolist()]

    def _options(
        self, place: int, found: Candidates, scores: Scores, totals: Floats, eos_allowed: bool
    ) -> list[_Option]:
        """Best first: what the search found, the best continuation of each hypothesis, and the tokens of phrases."""
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
            options.append(_Option(cost, parent, token, min(bank, phrases.bank_of_all)))
        return sorted(options)


def _two_beams(options: Sequence[_Option], width: int) -> list[_Option]:
    """What a beam takes, then what it would take of the rest: unfinished hypotheses for the places of finished ones."""
    first = _allocate(options, width)
    taken = set(first)
    return first + _allocate([option for option in options if option not in taken and option.token != EOS], width)


def _allocate(options: Sequence[_Option], width: int) -> list[_Option]:
    """As many as there are slots, best first: an equal share for each bank that has any, at least one slot, and what is left
    over to the fullest ones. These come first too where there are more banks than slots."""
    banks: dict[int, list[_Option]] = {}
    for option in options:
        banks.setdefault(option.bank, []).append(option)
    fullest_first = [banks[bank] for bank in sorted(banks, reverse=True)]
    share = max(1, width // max(1, len(banks)))
    taken: list[_Option] = []
    for of_bank in fullest_first:
        taken += of_bank[: min(share, width - len(taken))]
    for of_bank in fullest_first:
        taken += of_bank[share : share + width - len(taken)]
    return sorted(taken)

"""Choosing among the translations that a search found."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from nmt.config.choices import AlignmentKind, LongLines
from nmt.config.commands import GenerateConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.text import PAUSE
from nmt.errors import UsageError
from nmt.scoring import TextOptions
from nmt.scoring.pairwise import SIMILARITIES
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
    similarity = SIMILARITIES[metric](TextOptions())
    for translation in translations:
        hypotheses = translation.hypotheses
        totals = np.array([one.log_probability for one in hypotheses])
        weights = np.exp(totals - totals.max()) if posterior else np.ones(len(hypotheses))
        shares: dict[str, float] = {}
        for one, weight in zip(hypotheses, weights / weights.sum()):
            shares[one.text] = shares.get(one.text, 0.0) + float(weight)
        expected = dict(zip(shares, similarity(list(shares)) @ np.array(list(shares.values()))))
        scored = [dataclasses.replace(one, score=float(expected[one.text])) for one in hypotheses]
        yield dataclasses.replace(translation, hypotheses=_best(scored, nbest))


# Of lines with references and these numbers: their scores, one translation a line.
Score = Callable[[Iterator[Given], Iterator[int], GenerateConfig], Iterator[Translation]]


class ReverseModel:
    """What a model of the other direction finds the source probable of comes first: the noisy channel's view,
    log p(y|x) + weight * log p(x|y), each under the length penalty of the search (Yee et al. 2019, arXiv:1908.05731).

    A line that was translated in parts keeps its order: neither side of it can be read at once. So does one whose end was
    left out, of which the translations say nothing.
    """

    def __init__(self, score: Score, weight: float, config: GenerateConfig, *, in_pieces: bool = False) -> None:
        """``config``: how the translations were found; the same searching options score the sources. ``in_pieces``: the
        other model reads pieces as they are, which the texts of translations have joined."""
        self._score = score
        self._in_pieces = in_pieces
        self._weight = weight
        self._nbest = config.nbest
        self._config = dataclasses.replace(
            config,
            score_reference=True,
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


def check_reverse(forward: LanguagePair, backward: LanguagePair, path: str) -> None:
    """Refuse a model that does not lead back."""
    wanted, found = (forward.target_lang, forward.source_lang), (backward.source_lang, backward.target_lang)
    if wanted != found:
        raise UsageError(
            f"--rerank {path} translates from {found[0]} to {found[1]}; a model from {wanted[0]} to {wanted[1]} is needed"
        )


def _best(hypotheses: list[TranslatedText], count: int) -> list[TranslatedText]:
    return sorted(hypotheses, key=lambda one: -one.score)[:count]

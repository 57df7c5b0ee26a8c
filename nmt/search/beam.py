"""Beam search over any ``Decodable``.

Legend: B sentences, b of them still in the batch, K beam, V vocabulary, S source positions. Row s*K + k of a step
belongs to slot k of sentence s.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from nmt.config.option import option
from nmt.config.sections import require_not_negative, require_positive
from nmt.data.vocabulary import BOS, EOS
from nmt.errors import DataError, UsageError
from nmt.interface import Decodable, DecoderState, Hypothesis, Memory
from nmt.search import searches
from nmt.search.candidates import Candidates, StepScores
from nmt.search.coverage import Coverage
from nmt.search.history import Ending, History
from nmt.search.length_penalty import Length, LengthPenalty
from nmt.search.limits import LengthConfig, length_limits

_INFINITY = float("inf")


class StopRule(Enum):
    """When the search of one sentence ends."""

    first = "first"  # as soon as K hypotheses are finished (fairseq's rule)
    bound = "bound"  # when no unfinished hypothesis can still beat those that would be returned


@dataclass
class BeamConfig(LengthConfig):
    """Beam search: the K best unfinished hypotheses are extended side by side."""

    beam_size: int = option(5, help="hypotheses kept per sentence", flag="--beam")
    length_penalty: LengthPenalty = option(
        LengthPenalty.gnmt,
        help="log-probabilities are divided by: gnmt ((5+length)/6)^lenpen, power length^lenpen (fairseq's)",
        flag="--length-penalty",
    )
    lenpen: float = option(
        0.6, help="exponent of the length penalty; 0: none, higher favours longer translations", flag="--lenpen"
    )
    coverage_penalty: float = option(
        0.0,
        help="weight of log(attention that each source piece got, at most 1), added to the score of a finished "
        "translation; needs a model with attention",
        flag="--coverage-penalty",
    )
    stop: StopRule = option(
        StopRule.first,
        help="first: when as many hypotheses as the beam is wide are finished; bound: when no other can win any more",
        flag="--stop",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", beam_size=self.beam_size)
        require_not_negative("search", lenpen=self.lenpen, coverage_penalty=self.coverage_penalty)


@searches.register("beam", BeamConfig)
class BeamSearch:
    """Beam search with a key/value cache, back-pointers and early departure of finished sentences.

    At each step the 2K best continuations are looked at; a hypothesis is finished when its eos stands among the first
    K, the K best others go on. A hypothesis that reaches the length limit gets its eos by force and is marked
    ``finished=False``. What happens to a sentence depends on that sentence alone: batch mates never matter, and equal
    totals are ranked by slot, then token id. A beam wider than the vocabulary is allowed: slots stay empty until there
    are enough hypotheses, and a sentence may then return fewer than ``nbest``.
    """

    def __init__(self, config: BeamConfig, nbest: int = 1) -> None:
        if nbest > config.beam_size:
            raise UsageError(
                f"nbest={nbest} is more than the beam of {config.beam_size} finds; "
                f"lower --nbest or raise search.beam_size (--beam {nbest})"
            )
        self.config = config
        self.nbest = nbest

    def __call__(
        self, model: Decodable, source: Tensor, source_lengths: Tensor, *, attention: bool = False
    ) -> list[list[Hypothesis]]:
        with torch.inference_mode():
            kept, history = self._search(model, source, source_lengths, attention)
        endings = [kept.best(sentence) for sentence in range(source.size(0))]
        hypotheses = iter(history.hypotheses(list(itertools.chain(*endings)), source_lengths))
        return [list(itertools.islice(hypotheses, len(of_sentence))) for of_sentence in endings]

    def _search(
        self, model: Decodable, source: Tensor, source_lengths: Tensor, attention: bool
    ) -> tuple[_Kept, History]:
        config = self.config
        limits = length_limits(model, source_lengths, config.max_len_a, config.max_len_b)  # [B]
        kept = _Kept(config, self.nbest, limits)
        history = History(source.size(0), config.beam_size)
        beam = _start(model, source, source_lengths, config.beam_size)
        coverage = Coverage(config.coverage_penalty, source_lengths) if config.coverage_penalty else None
        for length in itertools.count(1):
            output = model.step(beam.tokens, beam.memory, beam.state, attention or coverage is not None)
            scores = StepScores(output)
            if coverage is not None:
                coverage.add(output.attention)
            found = self._candidates(scores, beam, limits, length)
            ends = (found.tokens == EOS) & (found.totals != -_INFINITY)  # [b, 2K]
            ends[:, config.beam_size :] = False
            if ends.any():
                kept.add(found, ends, scores, beam.sentences, length, coverage)
                found = found.without_eos()
            chosen = found.first(config.beam_size)
            token_scores = scores.log_probability(chosen.tokens, beam.rows_of(chosen.parents))
            weights = output.attention if attention else None
            history.append(beam.sentences, chosen.parents, chosen.tokens, token_scores, weights)
            staying = (~kept.settled(beam.sentences, chosen.totals[:, 0])).nonzero().squeeze(1)
            if len(staying) == 0:
                break
            if coverage is not None:
                coverage.follow(beam.rows_of(chosen.parents)[staying].flatten())
            beam = beam.advance(output.state, chosen, staying)
        return kept, history

    def _candidates(self, scores: StepScores, beam: _Beam, limits: Tensor, length: int) -> Candidates:
        """The 2K best continuations of each sentence; only the forced eos where the length limit is reached."""
        found = scores.best(beam.totals, 2 * self.config.beam_size, eos_allowed=length > self.config.min_len)
        at_limit = limits[beam.sentences] == length  # [b]
        if not at_limit.any():
            return found
        eos = beam.totals + scores.log_probability(torch.full_like(beam.tokens, EOS)).view_as(beam.totals)
        return found.replace(at_limit, Candidates.forced(eos, EOS))


@dataclass
class _Beam:
    """The unfinished hypotheses of the sentences still in the batch, before a step."""

    sentences: Tensor  # [b] which sentence of the batch each row is
    totals: Tensor  # [b, K] log-probabilities, best first; -inf: an empty slot
    tokens: Tensor  # [b * K] the last token of each
    memory: Memory  # b rows
    state: DecoderState  # b * K rows

    def rows_of(self, parents: Tensor) -> Tensor:
        """[b, K] slots -> [b, K] rows of the step."""
        return torch.arange(0, parents.numel(), parents.size(1), device=parents.device)[:, None] + parents

    def advance(self, state: DecoderState, chosen: Candidates, staying: Tensor) -> _Beam:
        """The beam after ``chosen`` [b, K], of the sentences ``staying`` (positions in b) only."""
        rows = self.rows_of(chosen.parents)
        if len(staying) == len(self.sentences):
            if rows.size(1) > 1:
                state = state.rows(rows.flatten())
            return _Beam(self.sentences, chosen.totals, chosen.tokens.flatten(), self.memory, state)
        return _Beam(
            sentences=self.sentences[staying],
            totals=chosen.totals[staying],
            tokens=chosen.tokens[staying].flatten(),
            memory=self.memory.rows(staying),
            state=state.rows(rows[staying].flatten()),
        )


def _start(model: Decodable, source: Tensor, source_lengths: Tensor, beam_size: int) -> _Beam:
    batch, device = source.size(0), source.device
    memory, state = model.start(model.encode(source, source_lengths), beam_size)
    totals = torch.full((batch, beam_size), -_INFINITY, device=device)
    totals[:, 0] = 0.0  # all slots would hold the same empty hypothesis: only the first is one
    tokens = torch.full((batch * beam_size,), BOS, device=device)
    return _Beam(torch.arange(batch, device=device), totals, tokens, memory, state)


class _Kept:
    """The finished hypotheses of each sentence, and what an unfinished one must still beat."""

    def __init__(self, config: BeamConfig, nbest: int, limits: Tensor) -> None:
        self._config = config
        self._nbest = nbest
        self._limits = limits.tolist()
        self._endings: list[list[Ending]] = [[] for _ in self._limits]
        self._to_beat = torch.full((len(limits),), -_INFINITY, device=limits.device)  # [B]
        self._longest_penalty = self._penalty(limits.float())  # [B]

    def add(
        self,
        found: Candidates,
        ends: Tensor,
        scores: StepScores,
        sentences: Tensor,
        length: int,
        coverage: Coverage | None,
    ) -> None:
        """Keep the candidates ``ends`` [b, 2K], which are ``length`` tokens long, in their order."""
        rows, columns = ends.nonzero(as_tuple=True)
        parents = found.parents[rows, columns]
        beam = self._config.beam_size
        eos_scores = scores.log_probability(torch.full_like(parents, EOS), rows * beam + parents)
        penalty = self._penalty(float(length))
        totals = found.totals[rows, columns]
        covered = torch.zeros_like(totals) if coverage is None else coverage.penalties(rows * beam + parents)
        events = zip(sentences[rows].tolist(), parents.tolist(), totals.tolist(), covered.tolist(), eos_scores.tolist())
        for sentence, parent, total, uncovered, eos_score in events:
            if math.isnan(total):
                raise DataError("the model's scores are not numbers (NaN): its checkpoint is damaged or diverged")
            finished = length < self._limits[sentence]
            ending = Ending(sentence, length, parent, total, total / penalty + uncovered, eos_score, finished)
            self._to_beat[sentence] = self._keep(self._endings[sentence], ending)

    def _keep(self, endings: list[Ending], ending: Ending) -> float:
        """File one more; returns the score that an unfinished hypothesis must now beat."""
        if self._config.stop is StopRule.first:
            if len(endings) < self._config.beam_size:
                endings.append(ending)
            return _INFINITY if len(endings) == self._config.beam_size else -_INFINITY
        endings.append(ending)
        endings.sort(key=_by_score)
        del endings[self._nbest :]
        return endings[-1].score if len(endings) == self._nbest else -_INFINITY

    def settled(self, sentences: Tensor, best: Tensor) -> Tensor:
        """[b] True where no continuation of hypotheses with log-probability ``best`` [b] or less can still matter."""
        # A log-probability only falls, the penalty only grows and coverage adds nothing: no score can become better.
        return best / self._longest_penalty[sentences] <= self._to_beat[sentences]

    def best(self, sentence: int) -> list[Ending]:
        endings = sorted(self._endings[sentence], key=_by_score)[: self._nbest]
        if not endings:
            raise DataError("the model gives every translation of a sentence the probability zero")
        return endings

    def _penalty(self, length: Length) -> Length:
        return self._config.length_penalty(length, self._config.lenpen)


def _by_score(ending: Ending) -> float:
    return -ending.score

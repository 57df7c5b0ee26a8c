"""Sampling: translations drawn from the model's distribution instead of the best ones.

Temperature; the k most probable tokens: Fan et al. 2018, arXiv:1805.04833, section 5.3; the nucleus of the most
probable tokens: Holtzman et al. 2020, arXiv:1904.09751, section 3.1; those above a share of the most probable one's
probability: Nguyen et al. 2024, arXiv:2407.01082, section 3.2; those above a probability: Hewitt et al. 2022,
arXiv:2210.15191, section 4.

Legend: B sentences, b of them still in the batch, K samples of each, N = b*K, T target positions, S source positions,
V vocabulary. Row s*K + k of a step is sample k of sentence s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError
from nmt.interface import Decodable, DecoderState, Hypothesis, Memory
from nmt.search import searches
from nmt.search.noise import sample_keys, sentence_keys, uniform
from nmt.search.requests import Request, refuse_inclusion
from nmt.search.rules import Rules
from nmt.search.sampling_config import SamplingConfig
from nmt.search.tensor_books import ForcedTokens, changed, follow, forbid
from nmt.trees import map_tensors

_INFINITY = float("inf")
_BELOW_ONE = 1.0 - 2.0**-48
_WIDTH = 64  # columns of a block
_FEW = 128  # tokens that a nucleus is first looked for in


@dataclass(frozen=True)
class Draws:
    """K samples of each of B sentences, in the order of their numbers."""

    tokens: Tensor  # [B, K, T] ids ending in eos, then pad
    scores: Tensor  # [B, K, T] the model's own log-probability of each token, 0 after the eos
    lengths: Tensor  # [B, K] eos included
    finished: Tensor  # [B, K] False: the length limit put the eos there
    attention: Tensor | None  # [B, K, T, S]

    def hypotheses(self, sentence: int, width: int) -> list[Hypothesis]:
        """Those of one sentence of ``width`` source positions, the most probable first."""
        found = [self._hypothesis(sentence, sample, width) for sample in range(self.tokens.size(1))]
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def _hypothesis(self, sentence: int, sample: int, width: int) -> Hypothesis:
        length = int(self.lengths[sentence, sample])
        scores = self.scores[sentence, sample, :length].clone()
        total = float(scores.sum())
        return Hypothesis(
            tokens=self.tokens[sentence, sample, :length].clone().numpy(),
            score=total,
            log_probability=total,
            token_scores=scores.numpy(),
            attention=None
            if self.attention is None
            else self.attention[sentence, sample, :length, :width].float().clone().numpy(),
            finished=bool(self.finished[sentence, sample]),
        )


@searches.register("sampling", SamplingConfig)
class SamplingSearch:
    """Draws ``nbest`` independent translations of each sentence; they may coincide.

    The temperature comes first, then the k most probable tokens, then the nucleus of what is left, then the two least
    probabilities; tokens that tie with the last one kept are kept too, and the most probable one always is. Scores are
    the model's own log-probabilities, whatever was changed for the draw. A sample is a function of (seed, source
    sentence, number of the sample): batch mates and their order never matter, and sample 3 of five is sample 3 of a
    hundred. One number decides a token, so that the cost of chance is small.
    """

    def __init__(self, config: SamplingConfig, nbest: int = 1) -> None:
        self.config = config
        self.nbest = nbest

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        found = self.draw(model, source, source_lengths, attention=attention, requests=requests)
        draws = map_tensors(Tensor.cpu, found)
        if bool(draws.scores.isnan().any()):
            raise DataError("the model's scores are not numbers (NaN): its checkpoint is damaged or diverged")
        return [draws.hypotheses(sentence, width) for sentence, width in enumerate(source_lengths.tolist())]

    def draw(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        seed: int | None = None,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> Draws:
        """The samples as tensors on the model's device; ``seed`` stands in for the configured one.

        Of scores that are not numbers (NaN) they are any tokens: training skips such an update.
        """
        refuse_inclusion(requests, "sampling")
        forced = ForcedTokens(requests, model, source_lengths, self.config)
        rules = Rules(self.config, requests, source.size(0), self.nbest)
        keys = sample_keys(
            sentence_keys(source, source_lengths, self.config.seed if seed is None else seed), self.nbest
        )
        with torch.inference_mode():
            return self._draw(model, source, source_lengths, keys, forced, rules, attention)

    def _draw(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        keys: Tensor,
        forced: ForcedTokens,
        rules: Rules,
        attention: bool,
    ) -> Draws:
        record = _Record(source.size(0), self.nbest)
        samples = _start(model, source, source_lengths, keys)
        for length in itertools.count(1):
            output = model.step(samples.tokens, samples.memory, samples.state, attention)
            log_probabilities = output.log_probabilities()  # [N, V]
            tokens = self._choose(log_probabilities, uniform(samples.keys.flatten(), length), rules, length)
            if (given := forced.tokens(samples.sentences, length)) is not None:
                given = given.repeat_interleave(self.nbest)
                tokens = torch.where(given >= 0, given, tokens)
            tokens = torch.where(samples.done.flatten(), EOS, tokens)
            scores = log_probabilities.gather(1, tokens[:, None]).squeeze(1)
            record.append(samples, tokens, scores, output.attention)
            rows, staying = samples.going_on(tokens)
            if len(staying) == 0:
                break
            samples = samples.after(tokens, output.state, rows, staying)
            follow(rules, samples.tokens, rows, staying)
        return record.draws(forced.limits)

    def _choose(self, log_probabilities: Tensor, chance: Tensor, rules: Rules, length: int) -> Tensor:
        """[N] the token at which the sum of the probabilities, in the order of the ids, passes ``chance`` [N]; eos where
        rules leave none."""
        config = self.config
        scores = log_probabilities if not rules.any else changed(log_probabilities, 0.0, rules.changes())
        scores = scores / config.temperature
        forbid(scores, [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS])
        if config.topk is not None and config.topk < scores.size(1):
            _keep_above(scores, scores.topk(config.topk).values[:, -1:])
        if config.topp is not None and config.topp < 1.0:
            _keep_above(scores, _nucleus_border(scores, config.topp))
        highest = scores.amax(1, keepdim=True)
        if config.minp > 0.0:
            _keep_above(scores, highest + math.log(config.minp))
        if config.epsilon > 0.0:
            total = scores.logsumexp(1, keepdim=True)
            _keep_above(scores, torch.minimum(total + math.log(config.epsilon), highest))
        return torch.where(highest.squeeze(1) == -_INFINITY, EOS, _passed(scores.softmax(1), chance))


@dataclass
class _Samples:
    """The samples of the sentences still in the batch, before a step. A sentence leaves when all its K are done."""

    sentences: Tensor  # [b] which sentence of the batch each is
    keys: Tensor  # [b, K]
    done: Tensor  # [b, K] True: this sample has its eos and waits for the others
    tokens: Tensor  # [N] the last token of each
    memory: Memory  # b rows
    state: DecoderState  # N rows

    def going_on(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The rows [N'] that are drawn further after ``tokens`` [N], and the sentences (positions in b) of these."""
        staying = (tokens != EOS).view_as(self.done).any(1).nonzero().squeeze(1)
        count = self.done.size(1)
        return (staying[:, None] * count + torch.arange(count, device=tokens.device)).flatten(), staying

    def after(self, tokens: Tensor, state: DecoderState, rows: Tensor, staying: Tensor) -> _Samples:
        done = (tokens == EOS).view_as(self.done)
        if len(staying) == len(done):
            return _Samples(self.sentences, self.keys, done, tokens, self.memory, state)
        return _Samples(
            sentences=self.sentences[staying],
            keys=self.keys[staying],
            done=done[staying],
            tokens=tokens[rows],
            memory=self.memory.rows(staying),
            state=state.rows(rows),
        )


def _start(model: Decodable, source: Tensor, source_lengths: Tensor, keys: Tensor) -> _Samples:
    batch, count = keys.shape
    memory, state = model.start(model.encode(source, source_lengths), count)
    sentences = torch.arange(batch, device=source.device)
    done = torch.zeros_like(keys, dtype=torch.bool)
    return _Samples(sentences, keys, done, torch.full((batch * count,), BOS, device=source.device), memory, state)


class _Record:
    """What was drawn, step by step, spread over all sentences of the batch."""

    def __init__(self, num_sentences: int, count: int) -> None:
        self._shape = (num_sentences, count)
        self._steps: list[tuple[Tensor, Tensor, Tensor | None]] = []  # [B, K], [B, K], [B, K, S]

    def append(self, samples: _Samples, tokens: Tensor, scores: Tensor, attention: Tensor | None) -> None:
        done = samples.done.flatten()
        tokens, scores = tokens.masked_fill(done, PAD), scores.masked_fill(done, 0.0)
        attended = None if attention is None else self._spread(samples.sentences, attention)
        self._steps.append((self._spread(samples.sentences, tokens), self._spread(samples.sentences, scores), attended))

    def draws(self, limits: Tensor) -> Draws:
        tokens, scores, attention = zip(*self._steps)
        stacked = torch.stack(tokens, 2)  # [B, K, T]
        lengths = (stacked != PAD).sum(2)
        attended = None if attention[0] is None else torch.stack(attention, 2)
        return Draws(stacked, torch.stack(scores, 2), lengths, lengths < limits[:, None], attended)

    def _spread(self, sentences: Tensor, rows: Tensor) -> Tensor:
        """Rows [N, ...] of the sentences still there -> [B, K, ...] of all."""
        full = rows.new_zeros((*self._shape, *rows.shape[1:]))
        full[sentences] = rows.view(len(sentences), self._shape[1], *rows.shape[1:])
        return full


def _keep_above(scores: Tensor, border: Tensor) -> None:
    """Forbid, in place, what scores [N, V] less than the border [N, 1]."""
    scores.masked_fill_(scores < border, -_INFINITY)


def _nucleus_border(scores: Tensor, share: float) -> Tensor:
    """[N, 1] the lowest score of the smallest set of tokens whose probabilities reach ``share`` together."""
    probabilities = scores.softmax(1)
    count = 0
    while True:  # sorting the whole vocabulary costs far more than the few tokens that a nucleus mostly has
        count = min(max(_FEW, 8 * count), scores.size(1))
        ranked = probabilities.topk(count)
        before = ranked.values.cumsum(1, dtype=torch.float64) - ranked.values  # [N, count] what likelier tokens have
        within = before < share
        if count == scores.size(1) or not within[:, -1].any():
            break
    last = within.sum(1, keepdim=True).clamp(min=1) - 1
    return scores.gather(1, ranked.indices.gather(1, last))


def _passed(probabilities: Tensor, chance: Tensor) -> Tensor:
    """[N] the first column at which the running sum of ``probabilities`` [N, V] passes ``chance`` [N] of [0, 1).

    First the block of columns, then the column in it: a running sum over everything takes several times as long.
    """
    vocabulary = probabilities.size(1)
    covered = vocabulary // _WIDTH * _WIDTH
    blocks = probabilities[:, :covered].view(len(probabilities), -1, _WIDTH).sum(2)  # [N, C]
    blocks = torch.cat([blocks, probabilities[:, covered:].sum(1, keepdim=True)], 1).double()
    block, chance = _first_beyond(blocks, chance)
    columns = block[:, None] * _WIDTH + torch.arange(_WIDTH, device=block.device)  # [N, W]
    inside = probabilities.gather(1, columns.clamp(max=vocabulary - 1)).double() * (columns < vocabulary)
    column, _ = _first_beyond(inside, chance)
    return (block * _WIDTH + column).clamp(max=vocabulary - 1)


def _first_beyond(weights: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
    """The first column at which the running sum of weights [N, n] passes the share ``chance`` [N] of the whole.

    Also how far into that column's weight it lies, again as a share of [0, 1).
    """
    sums = weights.cumsum(1)
    wanted = chance[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, wanted, right=True)
    found = found.clamp(max=weights.size(1) - 1)  # weights that are not numbers
    weight = weights.gather(1, found)
    share = (wanted - sums.gather(1, found) + weight) / weight
    return found.squeeze(1), share.squeeze(1).clamp(0.0, _BELOW_ONE)

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
from nmt.search.config import SamplingConfig
from nmt.search.requests import Forced, Request, Rules, refuse_inclusion
from nmt.trees import map_tensors

_INFINITY = float("inf")
_BELOW_ONE = 1.0 - 2.0**-48
_WIDTH = 64  # columns of a block
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio: successive counters lie far apart
_BITS = 48  # of a number; with 53 the product with a sum of probabilities could round up to that sum
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
        found = []
        for sample, length in enumerate(self.lengths[sentence].tolist()):
            tokens, scores = (part[sentence, sample, :length].clone() for part in (self.tokens, self.scores))
            weights = None
            if self.attention is not None:
                weights = self.attention[sentence, sample, :length, :width].float().clone().numpy()
            total, finished = float(scores.sum()), bool(self.finished[sentence, sample])
            found.append(Hypothesis(tokens.numpy(), total, total, scores.numpy(), weights, finished))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)


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
        of_model = model.max_target_lengths(source_lengths)
        limits = None if of_model is None else of_model.cpu().numpy()
        forced = Forced(requests, source_lengths.cpu().numpy(), self.config, limits)
        rules = Rules(self.config, requests, source.size(0), self.nbest)
        of_sentences = sentence_keys(source, source_lengths, self.config.seed if seed is None else seed)
        with torch.inference_mode():
            memory, state = model.start(model.encode(source, source_lengths), self.nbest)
            return self._draw(model, memory, state, sample_keys(of_sentences, self.nbest), forced, rules, attention)

    def _draw(
        self,
        model: Decodable,
        memory: Memory,
        state: DecoderState,
        keys: Tensor,
        forced: Forced,
        rules: Rules,
        attention: bool,
    ) -> Draws:
        """A sentence leaves the batch when all its K samples have their eos; until then those wait for the others."""
        (batch, count), device = keys.shape, keys.device
        sentences, done = torch.arange(batch, device=device), torch.zeros_like(keys, dtype=torch.bool)  # [b], [b, K]
        tokens, steps = torch.full((batch * count,), BOS, device=device), list[tuple[Tensor, Tensor, Tensor | None]]()

        def spread(rows: Tensor) -> Tensor:
            """[N, ...] of the sentences still there -> [B, K, ...] of all; what is missing is 0, as the pad is."""
            full = rows.new_zeros((batch, count, *rows.shape[1:]))
            full[sentences] = rows.view(len(sentences), count, *rows.shape[1:])
            return full

        for length in itertools.count(1):
            output = model.step(tokens, memory, state, attention)
            log_probabilities, waiting = output.log_probabilities(), done.flatten()  # [N, V], [N]
            tokens = self._choose(log_probabilities, uniform(keys.flatten(), length), rules, length)
            given = None if forced.chooses_at(length) else forced.tokens(sentences.cpu().numpy(), length)
            if given is not None:
                given_there = torch.from_numpy(given).to(device).repeat_interleave(count)
                tokens = torch.where(given_there >= 0, given_there, tokens)
            tokens = torch.where(waiting, EOS, tokens)
            scores = log_probabilities.gather(1, tokens[:, None]).squeeze(1).masked_fill(waiting, 0.0)
            weights = None if output.attention is None else spread(output.attention)
            steps.append((spread(tokens.masked_fill(waiting, PAD)), spread(scores), weights))
            done, state = (tokens == EOS).view_as(done), output.state
            staying = (~done).any(1).nonzero().squeeze(1)
            if len(staying) == 0:
                break
            rows = (staying[:, None] * count + torch.arange(count, device=device)).flatten()  # [N'] drawn further
            if len(staying) < len(done):
                sentences, keys, done, tokens = sentences[staying], keys[staying], done[staying], tokens[rows]
                memory, state = memory.rows(staying), state.rows(rows)
            if rules.any:
                rules.follow(*(part.cpu().numpy() for part in (tokens, rows, staying)))
        drawn, logarithms, maps = zip(*steps)
        ids = torch.stack(drawn, 2)  # [B, K, T]
        lengths, limits = (ids != PAD).sum(2), torch.from_numpy(forced.limits).to(device)
        attended = None if maps[0] is None else torch.stack(maps, 2)
        return Draws(ids, torch.stack(logarithms, 2), lengths, lengths < limits[:, None], attended)

    def _choose(self, log_probabilities: Tensor, chance: Tensor, rules: Rules, length: int) -> Tensor:
        """[N] the token at which the sum of the probabilities, in the order of the ids, passes ``chance`` [N]; eos where
        rules leave none."""
        config = self.config
        scores = log_probabilities
        if rules.any:
            scores = scores.clone()
            rules.changes().apply(scores, scores.new_zeros(len(scores)))
        scores = scores / config.temperature
        for token in (PAD, BOS) if length > rules.min_len else (PAD, BOS, EOS):
            scores[:, token] = -_INFINITY
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
    """The first column at which the running sum of weights [N, n] passes the share ``chance`` [N] of the whole, and how far
    into that column's weight this lies, again as a share of [0, 1)."""
    sums = weights.cumsum(1)
    wanted = chance[:, None] * sums[:, -1:]
    found = torch.searchsorted(sums, wanted, right=True)
    found = found.clamp(max=weights.size(1) - 1)  # weights that are not numbers
    weight = weights.gather(1, found)
    share = (wanted - sums.gather(1, found) + weight) / weight
    return found.squeeze(1), share.squeeze(1).clamp(0.0, _BELOW_ONE)


# Random numbers depend on what they are for, not on when they are drawn: a generator's follow each other, so what a sentence
# gets would depend on its batch mates. Here a number is a hash of (seed, source sentence, sample, step): the mixing function
# of SplitMix64, Steele et al. 2014, "Fast splittable pseudorandom number generators". A few operations on one integer a row,
# on any device.


def sentence_keys(source: Tensor, source_lengths: Tensor, seed: int) -> Tensor:
    """[B] a key for each sentence of ids [B, S], from its own pieces alone: padding does not enter."""
    positions = torch.arange(1, source.size(1) + 1, device=source.device)  # [S]
    real = positions[None, :] <= source_lengths[:, None]
    mixed = _mix(_mix(source + _wrapped(_GOLDEN)) + positions * _wrapped(_GOLDEN))  # [B, S]
    return _mix((mixed * real).sum(1) + _wrapped(seed * _GOLDEN))


def sample_keys(keys: Tensor, count: int) -> Tensor:
    """[B] -> [B, count]: a key for each sample; the first ones are the same however many there are."""
    numbers = torch.arange(1, count + 1, device=keys.device)
    return _mix(keys[:, None] + _mix(numbers * _wrapped(_GOLDEN)))


def uniform(keys: Tensor, step: int) -> Tensor:
    """For each key a number of [0, 1) in float64, another one at each step."""
    mixed = _mix(keys + _wrapped(step * _GOLDEN))
    return _shifted(mixed, 64 - _BITS).double() * 2.0**-_BITS


def _mix(x: Tensor) -> Tensor:
    """A bijection of 64-bit integers in which every bit of the result depends on every bit of ``x``."""
    x = (x ^ _shifted(x, 30)) * _wrapped(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _wrapped(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, zeros coming in from the left; torch's own operator repeats the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _wrapped(number: int) -> int:
    """The signed 64-bit integer with the same bits."""
    return (number + 2**63) % 2**64 - 2**63

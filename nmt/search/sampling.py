"""Sampling: translations drawn from the distribution of the model.

Top-k: Fan et al. 2018, arXiv:1805.04833, section 5.3. Nucleus (top-p): Holtzman et al. 2020, arXiv:1904.09751, section 3.1.
Min-p: Nguyen et al. 2024, arXiv:2407.01082, section 3.2. Epsilon: Hewitt et al. 2022, arXiv:2210.15191, section 4.

Legend: B sentences, b of them still in the batch, K samples of each, N = b*K, T target positions, S source positions,
V vocabulary. Row s*K + k of a step is sample k of sentence s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.data.tokenizers.randomness import STEP, Bits, mixed
from nmt.data.vocabulary import BOS, EOS, PAD, Flags, Floats, Hypothesis, Ids, Ints
from nmt.devices.kinds import device_of
from nmt.errors import DataError
from nmt.search import searches
from nmt.search.config import SamplingConfig
from nmt.search.constraints import ForcedTokens, Rules
from nmt.search.decoding import Engine, first_tokens
from nmt.search.history import spread
from nmt.search.requests import Sentences, refuse_inclusion

_GOLDEN = np.uint64(STEP)
_INFINITY = float("inf")
_BELOW_ONE = 1.0 - 2.0**-48
_WIDTH = 64  # columns of a block
_BITS = 48  # of a random number; with 53, its product with a sum of probabilities could round up to that sum
_FEW = 128  # tokens that are first searched for the nucleus


@dataclass(frozen=True)
class Draws:
    """K samples of each of B sentences, in the order of their numbers."""

    tokens: Ints  # [B, K, T] ids ending in eos, then pad
    scores: Floats  # [B, K, T] the model's own log-probability of each token, 0 after the eos
    lengths: Ints  # [B, K] eos included
    finished: Flags  # [B, K] False: the length limit put the eos there
    attention: Floats | None  # [B, K, T, S]

    def hypotheses(self, sentence: int, width: int) -> list[Hypothesis]:
        """Return the samples of a sentence with ``width`` source positions, the most probable first."""
        samples = []
        for sample, length in enumerate(self.lengths[sentence].tolist()):
            tokens = self.tokens[sentence, sample, :length].copy()
            scores = self.scores[sentence, sample, :length].copy()
            weights = None
            if self.attention is not None:
                weights = self.attention[sentence, sample, :length, :width].copy()
            total, finished = float(torch.from_numpy(scores).sum()), bool(self.finished[sentence, sample])
            samples.append(Hypothesis(tokens, total, total, scores, weights, finished))
        return sorted(samples, key=lambda hypothesis: -hypothesis.score)


@searches.register("sampling", SamplingConfig)
class SamplingSearch:
    """Draw ``nbest`` independent translations of each sentence; some may be equal.

    The temperature is applied first, then top-k, the nucleus of the rest, min-p and epsilon. Tokens that tie with the last
    kept one are kept too, and the most probable one always is. Scores are the log-probabilities of the model, without these
    changes. A sample is a function of (seed, source sentence, number of the sample): it does not depend on the batch, and
    sample 3 of 5 is sample 3 of 100. One random number decides a token, so randomness costs little.
    """

    def __init__(self, config: SamplingConfig, nbest: int = 1) -> None:
        self.config = config
        self.nbest = nbest

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        draws = self.draw(engine, batch)
        if np.isnan(draws.scores).any():
            raise DataError("the model's scores are NaN: its checkpoint is damaged or its training diverged")
        return [draws.hypotheses(sentence, width) for sentence, width in enumerate(batch.lengths.tolist())]

    def draw(self, engine: Engine, batch: Sentences, seed: int | None = None) -> Draws:
        """Return the samples as arrays; ``seed`` replaces the configured one.

        If scores are NaN, the samples are arbitrary tokens: training skips such an update. A sentence leaves the batch when
        all its K samples have an eos; until then, finished samples get pad tokens.
        """
        refuse_inclusion(batch.requests, "sampling")
        lengths, count = batch.lengths, self.nbest
        forced = ForcedTokens(batch, self.config, engine.longest_targets(lengths))
        rules = Rules(self.config, batch.requests, len(lengths), count)
        keys = sample_keys(sentence_keys(batch.sources, self.config.seed if seed is None else seed), count)
        decoding = engine.begin(batch.sources, count, batch.lists)
        sentences, tokens = np.arange(len(lengths)), first_tokens(decoding, batch, count)  # [b], [N]
        finished = np.zeros(keys.shape, dtype=np.bool_)  # [b, K]
        ids, logarithms, maps = list[Ints](), list[Floats](), list[Floats]()  # of each position [B, K, ...]
        for length in itertools.count(1):
            scores = decoding.step(tokens, batch.attention)
            prescribed, padding = forced.tokens(sentences, length), finished.ravel()
            fixed = np.where(padding, EOS, -1 if prescribed is None else prescribed.repeat(count))
            with torch.inference_mode():
                distribution = scores.log_probabilities()  # [N, V]
                device = device_of(distribution)
                fixed_there, chance = device.sent(fixed), device.sent(uniform(keys.ravel(), length))
                drawn = torch.where(fixed_there < 0, self._choose(distribution, chance, rules, length), fixed_there)
                tokens, own = device.fetched(drawn, distribution.gather(1, drawn[:, None]).squeeze(1))
            of_step = (ids, np.where(padding, PAD, tokens)), (logarithms, np.where(padding, np.float32(0.0), own))
            for steps, values in (*of_step, (maps, scores.attention)):
                if values is not None:
                    by_sentence = values.reshape(len(sentences), count, *values.shape[1:])
                    steps.append(spread(by_sentence, sentences, len(lengths)))
            finished = (tokens == EOS).reshape(finished.shape)
            staying = np.flatnonzero(~finished.all(1))
            if len(staying) == 0:
                break
            rows = (staying[:, None] * count + np.arange(count)).ravel()  # [N'] drawn further
            decoding.follow(np.tile(np.arange(count), (len(finished), 1)), staying)
            sentences, keys, finished, tokens = sentences[staying], keys[staying], finished[staying], tokens[rows]
            if rules.any:
                rules.follow(tokens, rows, staying)
        written = np.stack(ids, 2)
        num_tokens, attention = (written != PAD).sum(2), np.stack(maps, 2) if maps else None
        return Draws(written, np.stack(logarithms, 2), num_tokens, num_tokens < forced.limits[:, None], attention)

    def _choose(self, log_probabilities: Tensor, chance: Tensor, rules: Rules, length: int) -> Tensor:
        """[N] the token at which the cumulative probability, in the order of the ids, exceeds ``chance`` [N]; eos if rules
        forbid all tokens."""
        config = self.config
        scores = log_probabilities
        if rules.any:
            scores = scores.clone()
            rules.changes().placed(device_of(scores).sent).apply(scores, scores.new_zeros(len(scores)))
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
    """Forbid, in place, tokens whose scores [N, V] are below the border [N, 1]."""
    scores.masked_fill_(scores < border, -_INFINITY)


def _nucleus_border(scores: Tensor, share: float) -> Tensor:
    """[N, 1] the lowest score of the smallest set of tokens whose probabilities reach ``share`` together."""
    probabilities = scores.softmax(1)
    count = 0
    while True:  # sorting the whole vocabulary costs far more; a nucleus mostly has few tokens
        count = min(max(_FEW, 8 * count), scores.size(1))
        ranked = probabilities.topk(count)
        # [N, count] sum over more probable tokens
        before = ranked.values.cumsum(1, dtype=device_of(scores).exact) - ranked.values
        within = before < share
        if count == scores.size(1) or not within[:, -1].any():
            break
    last = within.sum(1, keepdim=True).clamp(min=1) - 1
    return scores.gather(1, ranked.indices.gather(1, last))


def _passed(probabilities: Tensor, chance: Tensor) -> Tensor:
    """[N] the first column at which the running sum of ``probabilities`` [N, V] exceeds ``chance`` [N] of [0, 1).

    Finds the block of columns, then the column in it: a running sum over all columns takes several times as long.
    """
    vocabulary, exact = probabilities.size(1), device_of(probabilities).exact
    covered = vocabulary // _WIDTH * _WIDTH
    blocks = probabilities[:, :covered].view(len(probabilities), -1, _WIDTH).sum(2)  # [N, C]
    blocks = torch.cat([blocks, probabilities[:, covered:].sum(1, keepdim=True)], 1).to(exact)
    block, chance = _first_beyond(blocks, chance)
    columns = block[:, None] * _WIDTH + torch.arange(_WIDTH, device=block.device)  # [N, W]
    inside = probabilities.gather(1, columns.clamp(max=vocabulary - 1)).to(exact) * (columns < vocabulary)
    column, _ = _first_beyond(inside, chance)
    return (block * _WIDTH + column).clamp(max=vocabulary - 1)


def _first_beyond(weights: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first column at which the running sum of weights [N, n] exceeds the share ``chance`` [N] of their total,
    and the position within the weight of that column, as a share of [0, 1)."""
    sums = weights.cumsum(1)
    thresholds = chance[:, None] * sums[:, -1:]
    columns = torch.searchsorted(sums, thresholds, right=True)
    columns = columns.clamp(max=weights.size(1) - 1)  # weights that are not numbers
    weight = weights.gather(1, columns)
    share = (thresholds - sums.gather(1, columns) + weight) / weight
    return columns.squeeze(1), share.squeeze(1).clamp(0.0, _BELOW_ONE)


# A random number is a hash of (seed, source sentence, sample, step). With a generator, the numbers of a sentence would
# depend on the other sentences of its batch.


def sentence_keys(sources: Sequence[Ids], seed: int) -> Bits:
    """[B] a key for each sentence, a function of its ids and their positions."""
    of_ids = (mixed(np.asarray(ids).astype(np.uint64) + _GOLDEN) for ids in sources)
    sums = [mixed(of_id + _numbers(len(of_id)) * _GOLDEN).sum() for of_id in of_ids]
    return mixed(np.array(sums, dtype=np.uint64) + np.uint64(seed * STEP % 2**64))


def sample_keys(keys: Bits, count: int) -> Bits:
    """[B] -> [B, count]: a key for each sample; the first ones do not depend on ``count``."""
    return mixed(keys[:, None] + mixed(_numbers(count) * _GOLDEN))


def uniform(keys: Bits, step: int) -> npt.NDArray[np.float64]:
    """Return a number of [0, 1) for each key, a different one at each step."""
    bits = mixed(keys + np.uint64(step * STEP % 2**64))
    return (bits >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS


def _numbers(count: int) -> Bits:
    return np.arange(1, count + 1, dtype=np.uint64)

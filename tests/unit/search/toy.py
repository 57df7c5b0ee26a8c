"""A tiny recurrent translation model, and slow searches over it written from the definition, in plain Python.

The model's next-token logits depend on every token so far (through a hidden state), on the position and on the source,
so a search that mixes up rows of state or memory cannot go unnoticed. The slow searches recompute each prefix from its
beginning in float64 and share no code with the toolkit.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import assume
from torch import Tensor

from nmt.interface import DecoderState, Memory, StepOutput

PAD, UNK, BOS, EOS = 0, 1, 2, 3
WIDTH = 5
CLOSE = 3e-5  # sums in float32 may have another order


def told_apart(totals: Iterable[float]) -> None:
    """An example proves nothing where float32 may order what decides another way."""
    ranked = sorted(total for total in totals if total > -np.inf)
    assume(not any(0 < higher - lower < CLOSE for lower, higher in itertools.pairwise(ranked)))


@dataclass
class ToyMemory(Memory):
    source: Tensor  # [B, S]
    lengths: Tensor  # [B]
    context: Tensor  # [B, WIDTH]


@dataclass
class ToyState(DecoderState):
    hidden: Tensor  # [N, WIDTH]
    position: Tensor  # [N]


class ToyModel:
    """Random weights; a higher ``eos_bias`` gives shorter translations."""

    def __init__(self, seed: int, vocabulary: int = 8, eos_bias: float = 0.0, limit: int | None = None) -> None:
        random = np.random.default_rng(seed)
        self.vocabulary, self.limit = vocabulary, limit
        self.source_table = random.normal(size=(vocabulary, WIDTH))
        self.token_table = random.normal(size=(vocabulary, WIDTH))
        self.recurrence = random.normal(size=(WIDTH, WIDTH))
        self.output = random.normal(size=(WIDTH, vocabulary)) * 1.5
        self.position_table = random.normal(size=(4, vocabulary))
        self.output_bias = np.zeros(vocabulary)
        self.output_bias[EOS] = eos_bias

    # The model as the toolkit sees it.

    def encode(self, source: Tensor, source_lengths: Tensor) -> ToyMemory:
        real = torch.arange(source.size(1)) < source_lengths[:, None]
        embedded = torch.from_numpy(self.source_table)[source] * real[:, :, None]
        return ToyMemory(source, source_lengths, embedded.sum(1) / source_lengths[:, None])

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ToyMemory) and vocabulary is None
        rows = memory.lengths.size(0) * beam_size
        return memory, ToyState(torch.zeros(rows, WIDTH, dtype=torch.float64), torch.zeros(rows, dtype=torch.int64))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ToyMemory) and isinstance(state, ToyState)
        beam = tokens.size(0) // memory.lengths.size(0)
        context = memory.context.repeat_interleave(beam, 0)
        inputs = torch.from_numpy(self.token_table)[tokens]
        hidden = torch.tanh(state.hidden @ torch.from_numpy(self.recurrence) + inputs + context)
        positions = torch.from_numpy(self.position_table)[state.position % 4]
        scores = hidden @ torch.from_numpy(self.output) + positions + torch.from_numpy(self.output_bias)
        attended = None
        if attention:
            energies = torch.einsum(
                "nd,nsd->ns", hidden, torch.from_numpy(self.source_table)[memory.source].repeat_interleave(beam, 0)
            )
            padding = torch.arange(memory.source.size(1)) >= memory.lengths.repeat_interleave(beam)[:, None]
            attended = energies.masked_fill(padding, -float("inf")).softmax(1).float()
        return StepOutput(scores.float(), False, ToyState(hidden, state.position + 1), attended)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return None if self.limit is None else torch.full_like(source_lengths, self.limit)

    # The same model from its definition.

    @functools.cache  # noqa: B019
    def hidden(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        """After reading bos and ``prefix``."""
        context = self.source_table[list(source)].mean(0)
        before = np.zeros(WIDTH) if not prefix else self.hidden(source, prefix[:-1])
        last = prefix[-1] if prefix else BOS
        return np.tanh(before @ self.recurrence + self.token_table[last] + context)

    @functools.cache  # noqa: B019
    def log_probabilities(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        logits = self.hidden(source, prefix) @ self.output + self.position_table[len(prefix) % 4] + self.output_bias
        return logits - np.log(np.exp(logits).sum())

    def attention(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        energies = self.source_table[list(source)] @ self.hidden(source, prefix)
        return np.exp(energies) / np.exp(energies).sum()


class SlowEnsemble:
    """Mean of probabilities, weighted or not, from the definition."""

    def __init__(self, models: list[ToyModel], weights: Sequence[float] = ()) -> None:
        self.models, self.vocabulary = models, models[0].vocabulary
        self.weights = weights or [1.0] * len(models)
        self.limit = min((model.limit for model in models if model.limit is not None), default=None)

    def log_probabilities(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        probabilities = [np.exp(model.log_probabilities(source, prefix)) for model in self.models]
        return np.log(np.average(probabilities, axis=0, weights=self.weights))

    def attention(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        return np.average([model.attention(source, prefix) for model in self.models], axis=0, weights=self.weights)


@dataclass(frozen=True)
class Found:
    tokens: tuple[int, ...]
    total: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Settings:
    """The options of a slow search."""

    beam: int = 3
    gnmt: bool = True
    alpha: float = 0.6
    a: float = 1.0
    b: float = 3
    min_len: int = 1
    stop: str = "first"
    patience: float = 1.0
    nbest: int = 1
    ngram: int = 0
    repetition: float = 1.0
    forbid_unknown: bool = False
    coverage: float = 0.0

    def score(
        self, model: ToyModel | SlowEnsemble, source: tuple[int, ...], tokens: tuple[int, ...], total: float
    ) -> float:
        """What ``tokens``, eos included, are ranked by once they have ended."""
        if not self.coverage:
            return total / self.penalty(len(tokens))
        attended = sum(model.attention(source, tokens[:t]) for t in range(len(tokens)))
        return total / self.penalty(len(tokens)) + self.coverage * float(np.log(np.minimum(attended, 1.0)).sum())

    def penalty(self, length: int) -> float:
        return ((5 + length) / 6) ** self.alpha if self.gnmt else length**self.alpha

    def limit(self, model: ToyModel | SlowEnsemble, source: tuple[int, ...]) -> int:
        """Tokens, eos included; ``source`` ends in eos."""
        own = math.floor(self.a * (len(source) - 1) + self.b) + 1
        return own if model.limit is None else min(own, model.limit)


@dataclass(frozen=True)
class Wish:
    """What is asked of one sentence's translation."""

    prefix: tuple[int, ...] = ()
    exclude: tuple[tuple[int, ...], ...] = ()
    min_length: int | None = None
    max_length: int | None = None

    def over(self, settings: Settings) -> Settings:
        """With the sentence's own lengths."""
        if self.max_length is not None:
            settings = replace(settings, a=0.0, b=self.max_length)
        return settings if self.min_length is None else replace(settings, min_len=self.min_length)


def ranked_by(
    model: ToyModel | SlowEnsemble, source: tuple[int, ...], prefix: tuple[int, ...], settings: Settings, wish: Wish
) -> np.ndarray:
    """What a search ranks the next tokens by, under the rules."""
    scores = model.log_probabilities(source, prefix).copy()
    for token in set(prefix):
        scores[token] *= settings.repetition
    n = settings.ngram
    grams = {prefix[start : start + n] for start in range(len(prefix) - n + 1)} if n else set()
    for token in range(model.vocabulary):
        written = (*prefix, token)
        if written[-n:] in grams and len(written) >= n > 0:
            scores[token] = -np.inf
        if any(written[-len(phrase) :] == phrase for phrase in wish.exclude):
            scores[token] = -np.inf
    if settings.forbid_unknown:
        scores[UNK] = -np.inf
    return scores


def exhaustive(model: ToyModel, source: tuple[int, ...], settings: Settings) -> list[Found]:
    """Every translation within the limits, best first."""
    limit = settings.limit(model, source)
    pieces = [token for token in range(model.vocabulary) if token not in (PAD, BOS, EOS)]
    found = []
    for length in range(limit):
        if length < settings.min_len and length + 1 < limit:
            continue
        for prefix in itertools.product(pieces, repeat=length):
            tokens = (*prefix, EOS)
            total = sum(model.log_probabilities(source, tokens[:t])[tokens[t]] for t in range(len(tokens)))
            found.append(Found(tokens, total, settings.score(model, source, tokens, total), len(tokens) < limit))
    return sorted(found, key=lambda one: -one.score)


def slow_beam(
    model: ToyModel | SlowEnsemble,
    source: tuple[int, ...],
    settings: Settings,
    wish: Wish = Wish(),
) -> list[Found]:
    """Beam search by the book, one sentence, lists of tokens. A total is what is ranked by, beside the model's own."""
    settings = wish.over(settings)
    limit, width = max(settings.limit(model, source), _at_least(model, wish)), settings.beam
    enough = max(settings.nbest, math.floor(width * settings.patience + 0.5))
    alive: list[tuple[tuple[int, ...], float, float]] = [((), 0.0, 0.0)]
    finished: list[Found] = []
    for length in range(1, limit + 1):
        continuations = _continuations(model, source, alive, length, limit, settings, wish)
        continuations.sort(key=lambda one: -one[1])
        told_apart(total for _, total, _ in continuations[: 2 * width + 1])
        if settings.stop == "shrink":
            continuations = continuations[: width - len(finished)]
        for tokens, total, own in continuations[:width]:
            if tokens[-1] == EOS and (settings.stop != "first" or len(finished) < enough):
                finished.append(Found(tokens, own, settings.score(model, source, tokens, total), length < limit))
        alive = [one for one in continuations[: 2 * width] if one[0][-1] != EOS][:width]
        if not alive or (settings.stop == "first" and len(finished) >= enough):
            break
        if _none_is_better(finished, [total for _, total, _ in alive], length, limit, settings, settings.nbest, width):
            break
    return _best(finished, settings.nbest)


def _none_is_better(
    finished: list[Found], totals: list[float], length: int, limit: int, settings: Settings, nbest: int, width: int
) -> bool:
    """Whether the rules "bound" and "estimate" end the search. ``totals``: of unfinished hypotheses."""
    needed, lengths = (nbest, range(length + 1, limit + 1)) if settings.stop == "bound" else (width, [length])
    if settings.stop not in ("bound", "estimate") or len(finished) < needed:
        return False
    worst = sorted((one.score for one in finished), reverse=True)[needed - 1]
    reachable = [total / settings.penalty(n) for total in totals for n in lengths]
    if settings.stop == "estimate":
        told_apart([worst, max(reachable)])
    return max(reachable) <= worst


def occurrences(tokens: Sequence[int], phrase: tuple[int, ...]) -> int:
    return sum(tuple(tokens[start : start + len(phrase)]) == phrase for start in range(len(tokens)))


def slow_including(
    model: ToyModel, source: tuple[int, ...], settings: Settings, include: Sequence[tuple[int, ...]]
) -> list[Found]:
    """Dynamic beam allocation of one sentence, phrases looked for anew in every list of tokens."""
    wanted = Counter(include)
    limit, width = settings.limit(model, source), settings.beam
    enough = max(settings.nbest, math.floor(width * settings.patience + 0.5))

    def missing(tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [phrase for phrase, count in wanted.items() if occurrences(tokens, phrase) < count]

    def begun(tokens: tuple[int, ...], phrase: tuple[int, ...]) -> list[int]:
        return [n for n in range(len(phrase)) if tokens[len(tokens) - n :] == phrase[:n] and n <= len(tokens)]

    def bank(tokens: tuple[int, ...]) -> int:
        whole = sum(len(phrase) * min(occurrences(tokens, phrase), count) for phrase, count in wanted.items())
        return whole + max((n for phrase in missing(tokens) for n in begun(tokens, phrase)), default=0)

    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Found] = []
    for length in range(1, limit + 1):
        every = {
            (*prefix, token): total + model.log_probabilities(source, prefix)[token]
            for prefix, total in alive
            for token in _choices(model, length, limit, settings, Wish())
        }
        told_apart(every.values())
        ranked = sorted(every, key=lambda tokens: -every[tokens])
        ended = [tokens for tokens in ranked if tokens[-1] == EOS and not missing(tokens[:-1])]
        if length == limit:
            row = ended if ended or finished else ranked
        else:
            possible = [tokens for tokens in ranked if tokens[-1] != EOS or tokens in ended]
            looked_at = set(ranked[: 2 * width])
            for prefix, _ in alive:
                looked_at.add(next(tokens for tokens in possible if tokens[:-1] == prefix))
                looked_at |= {(*prefix, phrase[n]) for phrase in missing(prefix) for n in begun(prefix, phrase)}
            options = [tokens for tokens in possible if tokens in looked_at]
            first = _shared_out(options, [bank(tokens) for tokens in options], width, every)
            others = [tokens for tokens in options if tokens not in first and tokens[-1] != EOS]
            row = first + _shared_out(others, [bank(tokens) for tokens in others], width, every)
        for tokens in row[:width]:
            if tokens[-1] == EOS and (settings.stop != "first" or len(finished) < enough):
                total = every[tokens]
                finished.append(Found(tokens, total, settings.score(model, source, tokens, total), length < limit))
        alive = [(tokens, every[tokens]) for tokens in row if tokens[-1] != EOS][:width]
        if not alive or (settings.stop == "first" and len(finished) >= enough):
            break
        if _none_is_better(finished, [total for _, total in alive], length, limit, settings, settings.nbest, width):
            break
    return _best(finished, settings.nbest)


def _shared_out(
    options: list[tuple[int, ...]], banks: list[int], width: int, totals: dict[tuple[int, ...], float]
) -> list[tuple[int, ...]]:
    """Equal shares for all banks, at least one slot; the fullest banks come first, and get what others leave."""
    share = max(1, width // max(1, len(set(banks))))
    places = Counter[int]()
    rank = {}
    for tokens, bank in zip(options, banks):
        rank[tokens] = (places[bank] >= share, -bank, places[bank])
        places[bank] += 1
    chosen = sorted(options, key=lambda tokens: rank[tokens])[:width]
    return sorted(chosen, key=lambda tokens: -totals[tokens])


def _best(found: Iterable[Found], count: int) -> list[Found]:
    ranked = sorted(found, key=lambda one: -one.score)
    told_apart(one.score for one in ranked[: count + 1])
    return ranked[:count]


@dataclass
class Lane:
    """One group of a diverse beam."""

    alive: list[tuple[tuple[int, ...], float, float]]
    finished: list[Found]


def slow_diverse(
    model: ToyModel, source: tuple[int, ...], settings: Settings, groups: int, strength: float, wish: Wish
) -> list[Found]:
    """Groups of beams one after the other at each position; a chosen token costs later groups ``strength``."""
    settings = wish.over(settings)
    limit, width = max(settings.limit(model, source), _at_least(model, wish)), settings.beam // groups
    nbest = min(settings.nbest, width)
    enough = max(nbest, math.floor(width * settings.patience + 0.5))
    lanes = [Lane([((), 0.0, 0.0)], []) for _ in range(groups)]
    for length in range(1, limit + 1):
        chosen: Counter[int] = Counter()
        for lane in lanes:
            found = _continuations(model, source, lane.alive, length, limit, settings, wish)
            found.sort(key=lambda one: -(one[1] - strength * chosen[one[0][-1]]))
            told_apart(total - strength * chosen[tokens[-1]] for tokens, total, _ in found[: 2 * width + 1])
            if settings.stop == "shrink":
                found = found[: width - len(lane.finished)]
            for tokens, total, own in found[:width]:
                if tokens[-1] == EOS and (settings.stop != "first" or len(lane.finished) < enough):
                    lane.finished.append(Found(tokens, own, total / settings.penalty(length), length < limit))
            lane.alive = [one for one in found[: 2 * width] if one[0][-1] != EOS][:width]
            chosen.update(tokens[-1] for tokens, _, _ in lane.alive)
        if all(_settled(lane, length, limit, settings, enough, nbest, width) for lane in lanes):
            break
    every = [one for lane in lanes for one in _best(lane.finished, nbest)]
    distinct = {one.tokens: one for one in sorted(every, key=lambda one: one.score)}
    return _best(distinct.values(), settings.nbest)


def _settled(lane: Lane, length: int, limit: int, settings: Settings, enough: int, nbest: int, width: int) -> bool:
    if not lane.alive or (settings.stop == "first" and len(lane.finished) >= enough):
        return True
    totals = [total for _, total, _ in lane.alive]
    return _none_is_better(lane.finished, totals, length, limit, settings, nbest, width)


def slow_greedy(
    model: ToyModel,
    source: tuple[int, ...],
    settings: Settings,
    wish: Wish = Wish(),
) -> Found:
    settings = wish.over(settings)
    limit, tokens, total = max(settings.limit(model, source), _at_least(model, wish)), (), 0.0
    while not tokens or tokens[-1] != EOS:
        scores = ranked_by(model, source, tokens, settings, wish)
        length = len(tokens) + 1
        choices = _choices(model, length, limit, settings, wish)
        told_apart(sorted(scores[token] for token in choices)[-2:])
        token = max(choices, key=lambda token: scores[token])
        if scores[token] == -np.inf and len(choices) > 1:
            token = EOS
        total += model.log_probabilities(source, tokens)[token]
        tokens = (*tokens, token)
    return Found(tokens, total, total, len(tokens) < limit)


def _continuations(
    model: ToyModel | SlowEnsemble,
    source: tuple[int, ...],
    alive: list[tuple[tuple[int, ...], float, float]],
    length: int,
    limit: int,
    settings: Settings,
    wish: Wish,
) -> list[tuple[tuple[int, ...], float, float]]:
    """By one token: tokens, what is ranked by, the model's own total. Only eos where rules leave nothing else."""
    found = []
    for prefix, total, own in alive:
        scores, models = ranked_by(model, source, prefix, settings, wish), model.log_probabilities(source, prefix)
        for token in _choices(model, length, limit, settings, wish):
            forced = length == limit or length <= len(wish.prefix)
            score = models[token] if forced else scores[token]
            if score > -np.inf:
                found.append(((*prefix, token), total + score, own + models[token]))
    if not found:
        for prefix, total, own in alive:
            score = model.log_probabilities(source, prefix)[EOS]
            found.append(((*prefix, EOS), total + score, own + score))
    return found


def _at_least(model: ToyModel | SlowEnsemble, wish: Wish) -> int:
    """A limit that leaves room for what is wanted, as far as the model goes."""
    wanted = max(len(wish.prefix), wish.min_length or 0) + 1
    return wanted if model.limit is None else min(wanted, model.limit)


def _choices(model: ToyModel | SlowEnsemble, length: int, limit: int, settings: Settings, wish: Wish) -> list[int]:
    """The tokens that may stand at a position, counted from 1, before rules."""
    if length == limit:
        return [EOS]
    if length <= len(wish.prefix):
        return [wish.prefix[length - 1]]
    banned = (PAD, BOS) if length > settings.min_len else (PAD, BOS, EOS)
    return [token for token in range(model.vocabulary) if token not in banned]

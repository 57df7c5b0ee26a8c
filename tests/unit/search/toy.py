"""A tiny recurrent translation model, and slow searches over it written from the definition, in plain Python.

The model's next-token logits depend on every token so far (through a hidden state), on the position and on the source,
so a search that mixes up rows of state or memory cannot go unnoticed. The slow searches recompute each prefix from its
beginning in float64 and share no code with the toolkit.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.interface import DecoderState, Memory, StepOutput

PAD, UNK, BOS, EOS = 0, 1, 2, 3
WIDTH = 5


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
    """Mean of probabilities, from the definition."""

    def __init__(self, models: list[ToyModel]) -> None:
        self.models, self.vocabulary = models, models[0].vocabulary
        self.limit = min((model.limit for model in models if model.limit is not None), default=None)

    def log_probabilities(self, source: tuple[int, ...], prefix: tuple[int, ...]) -> np.ndarray:
        return np.log(np.mean([np.exp(model.log_probabilities(source, prefix)) for model in self.models], axis=0))


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
    bound: bool = False
    nbest: int = 1

    def penalty(self, length: int) -> float:
        return ((5 + length) / 6) ** self.alpha if self.gnmt else length**self.alpha

    def limit(self, model: ToyModel | SlowEnsemble, source: tuple[int, ...]) -> int:
        """Tokens, eos included; ``source`` ends in eos."""
        own = math.floor(self.a * (len(source) - 1) + self.b) + 1
        return own if model.limit is None else min(own, model.limit)


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
            found.append(Found(tokens, total, total / settings.penalty(len(tokens)), len(tokens) < limit))
    return sorted(found, key=lambda one: -one.score)


def slow_beam(model: ToyModel | SlowEnsemble, source: tuple[int, ...], settings: Settings) -> list[Found]:
    """Beam search by the book, one sentence, lists of tokens."""
    limit, width = settings.limit(model, source), settings.beam
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Found] = []
    for length in range(1, limit + 1):
        continuations = []
        for prefix, total in alive:
            scores = model.log_probabilities(source, prefix)
            for token in range(model.vocabulary):
                if token in (PAD, BOS) or (length == limit and token != EOS):
                    continue
                if token == EOS and length <= settings.min_len and length < limit:
                    continue
                continuations.append(((*prefix, token), total + scores[token]))
        continuations.sort(key=lambda one: -one[1])
        for tokens, total in continuations[:width]:
            if tokens[-1] == EOS and (settings.bound or len(finished) < width):
                finished.append(Found(tokens, total, total / settings.penalty(length), length < limit))
        alive = [one for one in continuations[: 2 * width] if one[0][-1] != EOS][:width]
        if not alive or (not settings.bound and len(finished) >= width):
            break
        if settings.bound and len(finished) >= settings.nbest:
            worst = sorted((one.score for one in finished), reverse=True)[settings.nbest - 1]
            if all(total / settings.penalty(n) <= worst for _, total in alive for n in range(length + 1, limit + 1)):
                break
    return sorted(finished, key=lambda one: -one.score)[: settings.nbest]


def slow_greedy(model: ToyModel, source: tuple[int, ...], settings: Settings) -> Found:
    limit, tokens, total = settings.limit(model, source), (), 0.0
    while not tokens or tokens[-1] != EOS:
        scores = model.log_probabilities(source, tokens).copy()
        scores[[PAD, BOS]] = -np.inf
        if len(tokens) < settings.min_len:
            scores[EOS] = -np.inf
        token = EOS if len(tokens) + 1 == limit else int(scores.argmax())
        total += model.log_probabilities(source, tokens)[token]
        tokens = (*tokens, token)
    return Found(tokens, total, total, len(tokens) < limit)

"""A tiny model for tests of criterions, whose probabilities can be written down in a line of Python.

The hidden state at a position is tanh(embedding of the token before it + mean embedding of the source); attention to a
source piece grows with the product of the two embeddings. Everything is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    StepOutput,
)
from nmt.layers.padding import real_rows
from nmt.models.output_layers import LinearOutput

WIDTH, VOCABULARY = 4, 8


@dataclass
class TinyMemory(Memory):
    context: Tensor  # [B, WIDTH]
    embedded: Tensor  # [B, S, WIDTH]
    lengths: Tensor  # [B]


@dataclass
class TinyState(DecoderState):
    nothing: Tensor  # [N] no step depends on an earlier one


class TinyModel(EncoderDecoder):
    def __init__(self, seed: int = 1, dropout: float = 0.0, layers: int = 1, **auxiliary: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, dtype=torch.float64, generator=generator))

        self.source, self.target = random(VOCABULARY, WIDTH), random(VOCABULARY, WIDTH)
        bias = torch.zeros(VOCABULARY, dtype=torch.float64)
        bias[[PAD, BOS]] = -40.0  # as in a trained model, which sampling never lets produce them
        self.output: OutputLayer = LinearOutput(random(VOCABULARY, WIDTH).detach(), bias)
        self.dropout = nn.Dropout(dropout)
        self.layers = layers
        self.decoded: list[int] = []  # rows of each pass through the decoder
        self.modes: list[bool] = []  # training or not, at each encoding
        self.means = nn.ParameterDict({name: nn.Parameter(torch.tensor(mean)) for name, mean in auxiliary.items()})

    def encode(self, source: Tensor, source_lengths: Tensor) -> TinyMemory:
        self.modes.append(self.training)
        real = torch.arange(source.size(1)) < source_lengths[:, None]
        embedded = self.source[source] * real[:, :, None]
        return TinyMemory(embedded.sum(1) / source_lengths[:, None], embedded, source_lengths)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, TinyMemory)
        self.decoded.append(batch.num_sentences)
        hidden = self.dropout(torch.tanh(self.target[batch.target_in] + memory.context[:, None]))
        flat = real_rows(hidden, batch.target_lengths, batch.target_offsets, batch.num_tokens)
        maps = AttentionMaps({"cross": self._maps(memory, batch)}) if attention else None
        return DecoderOutput(flat, maps, dict(self.means.items()))

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, TinyMemory)
        return memory, TinyState(torch.zeros(len(memory.lengths) * beam_size))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, TinyMemory)
        context = memory.context.repeat_interleave(len(tokens) // len(memory.context), 0)
        hidden = self.dropout(torch.tanh(self.target[tokens] + context))
        return StepOutput(self.output.logits(hidden), False, state)

    def _maps(self, memory: TinyMemory, batch: Batch) -> tuple[Tensor, ...]:
        """Layer n is n times as sharp; of the two heads of each the second is even."""
        energies = torch.einsum("btd,bsd->bts", self.target[batch.target_in], memory.embedded)
        padding = torch.arange(energies.size(2)) >= memory.lengths[:, None, None]
        even = torch.zeros_like(energies).masked_fill(padding, -torch.inf).softmax(2)
        sharp = [(n * energies).masked_fill(padding, -torch.inf).softmax(2) for n in range(1, self.layers + 1)]
        return tuple(torch.stack([one, even], 1) for one in sharp)

    def log_probabilities(self, source: list[int], target: list[int]) -> Tensor:
        """Of each token of one target, from the definition; with gradient."""
        context = torch.stack([self.source[piece] for piece in source]).mean(0)
        weight, bias = self.output.linear()  # type: ignore[misc]
        scores = []
        for before, token in zip([BOS, *target], target):
            logits = weight @ torch.tanh(self.target[before] + context) + bias
            scores.append(logits[token] - logits.logsumexp(0))
        return torch.stack(scores)


def batch_of(*pairs: tuple[list[int], list[int]], **extras: Any) -> Batch:
    """Sentence pairs without eos."""
    sides = [[np.array([*pair[side], EOS]) for pair in pairs] for side in (0, 1)]
    return collate(sides[0], sides[1], None, extras)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Of every parameter, zero where it does not matter."""
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor], **tolerance: float) -> None:
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, **tolerance, msg=lambda said, name=name: f"{name}: {said}")

"""ByteNet, a dilated convolutional decoder stacked on a dilated convolutional encoder: Kalchbrenner et al. 2016,
arXiv:1610.10099.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, U unfolded source positions, T target positions,
M real target positions, D width of the residual stream (twice the hidden size), V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.data.vocabulary import PAD
from nmt.devices.kinds import device_of
from nmt.interface import (
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    StepOutput,
    VocabularySizes,
    real_positions,
)
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Borrowed, Embedding
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.config import shares_embeddings
from nmt.models.convolutional.config import ByteNetConfig, CombinationKind
from nmt.models.convolutional.convolution import CausalConvolution, ConvolutionState, SameConvolution
from nmt.models.output_layers import LinearOutput, ScoredMemory, TiedOutput, decoded


class Block(nn.Module):
    """A residual block with ReLUs: section 3.6 and figure 3 (left).

    Layer norm, ReLU and a map to half the width; layer norm, ReLU and the convolution; layer norm, ReLU and a map back.
    """

    kind: type[SameConvolution] | type[CausalConvolution]

    def __init__(self, hidden_size: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(
            nn.LayerNorm(2 * hidden_size),
            nn.ReLU(),
            nn.Linear(2 * hidden_size, hidden_size),
            nn.LayerNorm(hidden_size),
            nn.ReLU(),
        )
        self.after = nn.Sequential(nn.LayerNorm(hidden_size), nn.ReLU(), nn.Linear(hidden_size, 2 * hidden_size))
        self.dropout = Dropout(dropout)
        self.convolution = self.kind(nn.Linear(kernel * hidden_size, hidden_size), kernel, dilation)


class EncoderBlock(Block):
    """A residual block with a centered convolution."""

    kind = SameConvolution

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """[B, U, D] -> [B, U, D]; ``padding`` [B, U, 1]"""
        return self.dropout.add(x, self.after(self.convolution(self.before(x), padding)))


class DecoderBlock(Block):
    """A residual block with a causal convolution."""

    kind = CausalConvolution
    convolution: CausalConvolution

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """[N, T, D] -> [N, T, D], and the inputs of the convolution before the next position"""
        convolved, after = self.convolution(self.before(x), before)
        return self.dropout.add(x, self.after(convolved)), after


BlockType = TypeVar("BlockType", EncoderBlock, DecoderBlock)


class Concatenation(nn.Module):
    """A linear map of the target embedding and the encoder output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * width, width)

    def forward(self, embedded: Tensor, unfolded: Tensor) -> Tensor:
        """[..., D] twice -> [..., D]"""
        return self.linear(torch.cat([embedded, unfolded], dim=-1))


def at_positions(unfolded: Tensor, positions: Tensor) -> Tensor:
    """The encoder output [B, U, D] at the positions of hypotheses [B, K] -> [B, K, D], zero beyond its end"""
    inside = positions < unfolded.size(1)
    index = torch.where(inside, positions, 0)[:, :, None].expand(-1, -1, unfolded.size(2))
    return unfolded.gather(1, index).masked_fill(~inside[:, :, None], 0.0)


@dataclass
class ByteNetMemory(ScoredMemory):
    """The unfolded encoder output."""

    unfolded: Tensor  # [B, U, D] zero beyond |t^| = a |s| + b of each sentence


@models.register("bytenet", ByteNetConfig)
class ByteNet(EncoderDecoder):
    """The decoder reads the encoder output at its own position: no attention, and linear time."""

    def __init__(self, config: ByteNetConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = 2 * config.hidden_size
        self.unfold_a, self.unfold_b = config.unfold_a, config.unfold_b
        shared = shares_embeddings(config.share_all_embeddings, sizes.shared)
        scale = math.sqrt(self.width)  # embeddings of unit variance
        self.source_embedding = Embedding(sizes.source, self.width, scale)
        self.target_embedding = (
            Borrowed(self.source_embedding) if shared else Embedding(sizes.target, self.width, scale)
        )
        self.dropout = Dropout(config.dropout)
        self.encoder = _blocks(EncoderBlock, config.encoder_sets, config.encoder_kernel, config)
        self.combination = torch.add if config.combination is CombinationKind.add else Concatenation(self.width)
        self.decoder = _blocks(DecoderBlock, config.decoder_sets, config.decoder_kernel, config)
        self.head = nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU())
        self.output = TiedOutput(self.source_embedding) if shared else LinearOutput.with_bias(self.width, sizes.target)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        unfolded_lengths = self.unfolded_lengths(source_lengths)
        longest = int(self.unfolded_lengths(torch.tensor([source.size(1)])))
        # The source is extended by padding symbols, which are embedded like other symbols: section 6.
        source = F.pad(source, (0, longest - source.size(1)), value=PAD)  # [B, U]
        x = self.dropout(self.source_embedding(source))
        padding = ~real_positions(unfolded_lengths, longest)[:, :, None]
        for block in self.encoder:
            x = block(x, padding)
        return ByteNetMemory(x.masked_fill(padding, 0.0))

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, ByteNetMemory)
        missing = batch.target_in.size(1) - memory.unfolded.size(1)
        x = self._decoder_input(batch.target_in, F.pad(memory.unfolded, (0, 0, 0, missing)))  # negative padding cuts
        for block in self.decoder:
            x, _ = block(x)
        return decoded(x, batch, attention, read_out=self.head)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, ByteNetMemory)
        rows = memory.unfolded.size(0) * beam_size
        positions = torch.zeros(rows, dtype=torch.long, device=memory.unfolded.device)
        size, like = self.width // 2, memory.unfolded
        caches = tuple(block.convolution.empty_cache(rows, size, like) for block in self.decoder)
        return memory.scored_by(self.output, vocabulary), ConvolutionState(positions, caches)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ByteNetMemory) and isinstance(state, ConvolutionState)
        by_sentence = (memory.unfolded.size(0), -1)  # [B, K]
        source = at_positions(memory.unfolded, state.positions.view(by_sentence))
        x = self._decoder_input(tokens.view(by_sentence), source)
        x = x.flatten(0, 1)[:, None]  # [N, 1, D]
        caches = []
        for block, before in zip(self.decoder, state.caches):
            x, after = block(x, before)
            caches.append(after)
        scores = self.scores(self.head(x[:, 0]), memory.output)
        return StepOutput(scores, False, ConvolutionState(state.positions + 1, tuple(caches)))

    def unfolded_lengths(self, source_lengths: Tensor) -> Tensor:
        """|t^| = a |s| + b, rounded up (section 3.2, equation 2), and at least the source length."""
        exact = source_lengths.to(device_of(source_lengths).exact)
        lengths = torch.ceil(exact * self.unfold_a + self.unfold_b).to(source_lengths.dtype)
        return torch.maximum(lengths, source_lengths)

    def _decoder_input(self, tokens: Tensor, source: Tensor) -> Tensor:
        """Tokens [B, T or K] and the encoder output at their positions [B, T or K, D] -> [B, T or K, D]"""
        return self.combination(self.dropout(self.target_embedding(tokens)), source)


def _blocks(kind: type[BlockType], sets: int, kernel: int, config: ByteNetConfig) -> Stack[BlockType]:
    return Stack(
        kind(config.hidden_size, kernel, dilation, config.dropout) for _ in range(sets) for dilation in config.dilations
    )

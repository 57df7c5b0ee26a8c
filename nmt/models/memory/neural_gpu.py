"""The extended Neural GPU: Kaiser and Bengio 2016, arXiv:1610.08613; Kaiser and Sutskever 2016, arXiv:1511.08228.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, C maps, W width, H height,
E source embedding. Images are [N, C, W, H], as torch convolves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from nmt.devices.kinds import device_of
from nmt.errors import DataError
from nmt.interface import AttentionRequest, Batch, DecoderOutput, DecoderState, Memory, VocabularySizes
from nmt.layers.embeddings import Embedding
from nmt.models import models
from nmt.models.memory.config import NeuralGPUConfig
from nmt.models.output_layers import LinearOutput, ScoredMemory
from nmt.models.recurrent.attentive_recurrent import ReadResult, Recurrent

KERNEL = 3  # width and height of a filter, in both papers
CUTOFF = 1.2  # a gate is a logistic function stretched to -0.1 ... 1.1 and cut to 0 ... 1
OPEN = 1.0  # initial bias of the gates, which keeps most of an image
GAIN = 1.8 * 0.8  # gain of the orthogonal initialization of filters, in the authors' published code


def cut_sigmoid(x: Tensor) -> Tensor:
    """min(1, max(0, 1.2 sigma(x) - 0.1)): a gate that can be entirely open or shut (section 2.1 of the paper)."""
    return (CUTOFF * torch.sigmoid(x) - (CUTOFF - 1) / 2).clamp(0.0, 1.0)


class ConvGRU(nn.Module):
    """A gated convolution of an image s, with an optional read-only image p.

    r, g = cut(U * [p, s] + B);  CGRU(s) = g . s + (1 - g) . tanh(V * [p, r . s] + B'),  with * a convolution that pads
    with zeros: section 2.1; with p, the "decided" tape of arXiv:1610.08613. The filters of r and g are one parameter.
    """

    def __init__(self, maps: int, read_maps: int = 0) -> None:
        super().__init__()
        self.gates = nn.Conv2d(read_maps + maps, 2 * maps, KERNEL, padding=KERNEL // 2)
        self.candidate = nn.Conv2d(read_maps + maps, maps, KERNEL, padding=KERNEL // 2)
        for filters in (*self.gates.weight.detach().chunk(2), self.candidate.weight.detach()):
            nn.init.orthogonal_(filters, GAIN)
        nn.init.constant_(self.gates.bias, OPEN)  # type: ignore[arg-type]
        nn.init.zeros_(self.candidate.bias)  # type: ignore[arg-type]

    def forward(self, image: Tensor, inside: Tensor, read: Tensor | None = None) -> Tensor:
        """image [N, C, W, H] -> [N, C, W, H]; ``inside`` [N, 1, W, 1] is 1 in an image's columns and 0 beyond.

        The image, ``read`` and the result are zero beyond.
        """
        read_only = [] if read is None else [read]
        reset, update = cut_sigmoid(self.gates(torch.cat([*read_only, image], dim=1))).chunk(2, dim=1)
        candidate = torch.tanh(self.candidate(torch.cat([*read_only, reset * image], dim=1)))
        dtype = image.dtype  # of a norm, or of a convolution under autocast
        return torch.lerp(candidate.to(dtype), image, update.to(dtype)) * inside


class ImageStep(nn.Module):
    """Consecutive gated convolutions: one step of the encoder or decoder."""

    def __init__(self, convolutions: Sequence[ConvGRU]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)

    def forward(self, image: Tensor, inside: Tensor, read: Tensor | None = None) -> Tensor:
        """[N, C, W, H] -> [N, C, W, H]; the arguments are those of ``ConvGRU``."""
        for convolution in self.convolutions:
            image = convolution(image, inside, read)
        return image


class ImageDropout(nn.Module):
    """Zero elements of an image with probability 3 p / sqrt(length), and scale the rest, in training mode.

    The images of long sentences pass it more often. The formula follows the authors' published code, but uses the length of
    each sentence instead of the batch's.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, image: Tensor, lengths: Tensor) -> Tensor:
        """image [N, C, W, H], lengths [N]"""
        if not self.training or self.p == 0.0:
            return image
        kept = (1 - 3 * self.p / lengths.to(image.dtype).sqrt())[:, None, None, None]
        return image * (torch.rand_like(image) < kept) / kept


EMBEDDING_RANGE = 1.7  # embeddings are initialized uniformly within +-1.7, as in the authors' published code


@dataclass
class NeuralGPUMemory(ScoredMemory):
    """The image after the encoder steps of each sentence, and its width."""

    image: Tensor  # [B, C, W, H] zero beyond a sentence's width
    inside: Tensor  # [B, 1, W, 1] 1 within it
    lengths: Tensor  # [B]


@dataclass
class NeuralGPUState(DecoderState):
    """The image and the output tape of each hypothesis."""

    image: Tensor  # [N, C, W, H]
    tape: Tensor  # [N, C, W] the embedded output tokens, then zeros
    inside: Tensor  # [N, 1, W, 1]
    lengths: Tensor  # [N] of the sources
    positions: Tensor  # [N] of the next token


@models.register("neural_gpu", NeuralGPUConfig)
class NeuralGPU(Recurrent):
    """Active memory: every step changes the whole image by gated convolutions; a tape holds the output tokens.

    The width of a sentence's image and its number of encoder steps depend on its source length. The image is zero beyond its
    width, so results do not depend on the batch. (The authors pad a batch to one length and use that for both.)
    """

    def __init__(self, config: NeuralGPUConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = maps = config.num_maps
        self.height = config.height
        self.width_rule = (config.width_a, config.width_b)
        self.source_embedding = Embedding(sizes.source, config.embedding_size)
        self.target_embedding = Embedding(sizes.target, maps)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.uniform_(embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        self.input = nn.Linear(config.embedding_size, maps)
        nn.init.orthogonal_(self.input.weight, GAIN)
        nn.init.zeros_(self.input.bias)
        self.norm = nn.LayerNorm(maps)
        self.first = ConvGRU(maps)
        self.encoder = ImageStep([ConvGRU(maps) for _ in range(config.num_convs)])
        self.decoder = ImageStep([ConvGRU(maps, read_maps=maps) for _ in range(config.num_convs)])
        self.dropout = ImageDropout(config.dropout)
        self.output = LinearOutput(nn.init.orthogonal_(torch.empty(sizes.target, maps), GAIN))

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        image, inside = self._first_image(source, source_lengths)
        for step in range(source.size(1)):
            after = self.encoder(self.dropout(image, source_lengths), inside)
            active = (step < source_lengths)[:, None, None, None]
            image = torch.where(active, after, image)
        return NeuralGPUMemory(image, inside, source_lengths)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        """Decode; refuse a target longer than its image."""
        widths = self._widths(torch.from_numpy(batch.source_sizes)).numpy()
        for row in np.flatnonzero(batch.target_sizes > widths)[:1]:
            raise DataError(
                f"a target sentence has {batch.target_sizes[row]} tokens, but the image of its source is "
                f"{widths[row]} wide; raise model.width_a or model.width_b, or filter such pairs (--max-ratio when "
                f"preprocessing)"
            )
        return super().decode(memory, batch, attention)

    def begin(self, memory: NeuralGPUMemory, beam_size: int) -> NeuralGPUState:
        image, inside, lengths = (
            tensor.repeat_interleave(beam_size, dim=0) for tensor in (memory.image, memory.inside, memory.lengths)
        )
        return NeuralGPUState(image, torch.zeros_like(image[:, :, :, 0]), inside, lengths, torch.zeros_like(lengths))

    def read(self, tokens: Tensor, memory: NeuralGPUMemory, state: NeuralGPUState) -> ReadResult:
        read = []
        for last in tokens.unbind(1):
            state, cells = self._advance(last, state)
            read.append(cells)
        return torch.stack(read, 1), (), state

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self._widths(source_lengths)

    def _widths(self, source_lengths: Tensor) -> Tensor:
        """Return the image widths [...] of sources."""
        a, b = self.width_rule
        return torch.floor(source_lengths.to(device_of(source_lengths).exact) * a + b).to(torch.int64)

    def _first_image(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Write the source into the first row of an image and convolve it; return the image and ``inside`` [B, 1, W, 1]."""
        widest = int(self._widths(torch.tensor(source.size(1))))
        columns = torch.arange(widest, device=source.device)
        widths = self._widths(lengths)
        embedded = self.source_embedding(source)  # [B, S, E]
        cells = embedded.new_zeros(len(source), widest, self.height, embedded.size(2))  # [B, W, H, E]
        real = columns[: source.size(1)] < lengths[:, None]
        cells[:, : source.size(1), 0] = embedded * real[:, :, None]
        image = self.norm(self.input(cells)).permute(0, 3, 1, 2)  # [B, C, W, H]
        inside = (columns < widths[:, None]).to(image.dtype)[:, None, :, None]  # [B, 1, W, 1]
        return self.first(image * inside, inside), inside

    def _advance(self, tokens: Tensor, state: NeuralGPUState) -> tuple[NeuralGPUState, Tensor]:
        """Write the last tokens [N], except bos, to the tape; take one step; return the output cells [N, C].

        o_t is read from the first row of column t of the image: arXiv:1610.08613, section 2.3.
        """
        columns = torch.arange(state.tape.size(2), device=tokens.device)
        written = (columns == state.positions[:, None] - 1)[:, None]  # [N, 1, W]
        tape = torch.where(written, self.target_embedding(tokens)[:, :, None], state.tape)
        read_only = tape[:, :, :, None].expand(-1, -1, -1, self.height)  # [N, C, W, H], equal rows
        image = self.decoder(self.dropout(state.image, state.lengths), state.inside, read_only)
        here = (columns == state.positions[:, None])[:, None].to(image.dtype)
        read = (image[:, :, :, 0] * here).sum(2)
        return replace(state, image=image, tape=tape, positions=state.positions + 1), read

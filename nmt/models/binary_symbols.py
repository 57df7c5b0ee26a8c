"""Symbols as bit vectors: a fixed embedding, and an output layer of independent bits.

The ids determine the codes. The four specials are followed by 2^k symbols, so that id 4 + n is the number n. Later ids are
markers (delimiters within a sentence), each with a separate channel.

Shapes: V vocabulary, k bits, A channels, D width of the hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.data.vocabulary import BOS, EOS, SPECIALS
from nmt.interface import OutputLayer, Scoring, VocabularySizes
from nmt.layers.linear import at_least_float32
from nmt.models.output_layers import OwnColumns, absences

NEVER = -30.0  # approximate log-probability of pad, unk and bos, finite for label smoothing


def bits_needed(vocabulary_size: int) -> int:
    """Return the minimum number of bits for a vocabulary."""
    return max(1, (vocabulary_size - len(SPECIALS) - 1).bit_length())


def bit_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """Return bits [V, k], the most significant first; those of specials and markers are 0."""
    numbers = torch.arange(vocabulary_size) - len(SPECIALS)
    shifts = torch.arange(num_bits - 1, -1, -1)
    return (((numbers[:, None] >> shifts) & 1) * _is_symbol(vocabulary_size, num_bits)[:, None]).float()


def marker_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """Return one-hot rows of the markers [V, V - 4 - 2^k]."""
    return _one_hot(vocabulary_size, range(len(SPECIALS) + 2**num_bits, vocabulary_size))


def _one_hot(vocabulary_size: int, ids: Sequence[int]) -> Tensor:
    """Return columns [V, len(ids)] with 1 in the row of each id."""
    return (torch.arange(vocabulary_size)[:, None] == torch.tensor(ids, dtype=torch.int64)).float()


def _is_symbol(vocabulary_size: int, num_bits: int) -> Tensor:
    """Return [V], True at symbols."""
    numbers = torch.arange(vocabulary_size) - len(SPECIALS)
    return torch.logical_and(numbers >= 0, numbers < 2**num_bits)


class BinaryEmbedding(nn.Module):
    """A fixed embedding: the bits, and a channel each for bos, eos and every marker."""

    def __init__(self, codes: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes, persistent=False)  # [V, A]

    def forward(self, ids: Tensor) -> Tensor:
        """[...] -> [..., A]"""
        return F.embedding(ids, self.get_buffer("codes"))


def input_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """Return the channels of all ids [V, A]."""
    marks = _one_hot(vocabulary_size, [BOS, EOS])
    return torch.cat([bit_codes(vocabulary_size, num_bits), marks, marker_codes(vocabulary_size, num_bits)], dim=1)


def binary_embeddings(sizes: VocabularySizes, num_bits: int | None) -> tuple[BinaryEmbedding, BinaryEmbedding, int]:
    """Return the embeddings of source and target, and their channels; no ``num_bits``: the minimum for each."""
    of_sides = [input_codes(size, num_bits or bits_needed(size)) for size in (sizes.source, sizes.target)]
    channels = max(codes.size(1) for codes in of_sides)  # missing markers of one side are 0
    source, target = (BinaryEmbedding(F.pad(codes, (0, channels - codes.size(1)))) for codes in of_sides)
    return source, target, channels


class BinaryOutput(OutputLayer):
    """A logit each for every bit, for eos, and for every marker.

    The score of a symbol is its log-probability with independent bits, sum_j b_j l_j - softplus(l_j); the scores of eos and
    of markers are their logits. The probabilities of all 2^k symbols sum to 1, so the softmax over symbols is the product of
    the bits' probabilities, and the cross-entropy is the sum of k logistic ones: Graves et al. 2014, section 4. Without
    markers, p(eos) = sigma(its logit).
    """

    def __init__(self, project: nn.Linear, num_bits: int, table: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.project, self.num_bits = project, num_bits
        self.register_buffer("table", table, persistent=False)  # [V, k + 1 + markers + 1]
        self.register_buffer("bias", bias, persistent=False)  # [V]

    def logits(self, hidden: Tensor) -> Tensor:
        logits = at_least_float32(self.project(hidden))  # [..., k + 1 + markers]
        normalizer = F.softplus(logits[..., : self.num_bits]).sum(-1, keepdim=True)
        features = torch.cat([logits, normalizer], dim=-1)
        table, bias = (self.get_buffer(name).to(features.dtype) for name in ("table", "bias"))
        # The bits and the normalizer cancel, which needs precision.
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(features, table, bias)

    def restrict(self, vocabulary: Tensor) -> Scoring:
        if vocabulary.dim() == 2:
            return OwnColumns(self, vocabulary, absences(vocabulary, self.get_buffer("table").dtype))
        table, bias = self.get_buffer("table")[vocabulary], self.get_buffer("bias")[vocabulary]
        return BinaryOutput(self.project, self.num_bits, table, bias)

    def linear(self) -> None:
        """Return None: the normalizer of symbols is not linear in the hidden state."""
        return None


def binary_output(hidden_size: int, vocabulary_size: int, num_bits: int | None) -> BinaryOutput:
    """Build an output layer with k + 1 + markers logits; ``num_bits`` None: the minimum."""
    num_bits = num_bits or bits_needed(vocabulary_size)
    symbols = _is_symbol(vocabulary_size, num_bits)[:, None].float()
    codes = [
        bit_codes(vocabulary_size, num_bits),
        _one_hot(vocabulary_size, [EOS]),
        marker_codes(vocabulary_size, num_bits),
        -symbols,  # all symbols have the same normalizer
    ]
    table = torch.cat(codes, dim=1)
    project = nn.Linear(hidden_size, table.size(1) - 1)
    return BinaryOutput(project, num_bits, table, NEVER * (table == 0).all(1))

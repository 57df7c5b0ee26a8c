"""Symbols as bit vectors: a fixed embedding, and an output layer of independent bits.

The codes follow from the ids alone. After the four specials come 2^k symbols in numeric order, so that id 4 + n is the
number n; ids beyond are markers (delimiters within a sentence), each with a channel of its own.

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

NEVER = -30.0  # log-probability, about, of pad, unk and bos: finite, so that label smoothing stays finite


def bits_needed(vocabulary_size: int) -> int:
    """The fewest bits that tell all symbols apart."""
    return max(1, (vocabulary_size - len(SPECIALS) - 1).bit_length())


def bit_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """[V, k] of 0 and 1, the most significant bit first; specials and markers have none set."""
    numbers = torch.arange(vocabulary_size) - len(SPECIALS)
    places = torch.arange(num_bits - 1, -1, -1)
    return (((numbers[:, None] >> places) & 1) * _is_symbol(vocabulary_size, num_bits)[:, None]).float()


def marker_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """[V, V - 4 - 2^k] one-hot rows of the markers; no columns if every id is a special or a symbol."""
    return _one_hot(vocabulary_size, range(len(SPECIALS) + 2**num_bits, vocabulary_size))


def _one_hot(vocabulary_size: int, ids: Sequence[int]) -> Tensor:
    """[V, len(ids)] a column for each of ``ids``, 1 in its row."""
    return (torch.arange(vocabulary_size)[:, None] == torch.tensor(ids, dtype=torch.int64)).float()


def _is_symbol(vocabulary_size: int, num_bits: int) -> Tensor:
    """[V] True at symbols."""
    numbers = torch.arange(vocabulary_size) - len(SPECIALS)
    return torch.logical_and(numbers >= 0, numbers < 2**num_bits)


class BinaryEmbedding(nn.Module):
    """Ids to fixed channels: the bits, one channel for bos and one for eos, and one for each marker."""

    def __init__(self, codes: Tensor) -> None:
        super().__init__()
        self.register_buffer("codes", codes, persistent=False)  # [V, A]

    def forward(self, ids: Tensor) -> Tensor:
        """[...] -> [..., A]"""
        return F.embedding(ids, self.get_buffer("codes"))


def input_codes(vocabulary_size: int, num_bits: int) -> Tensor:
    """[V, A]"""
    marks = _one_hot(vocabulary_size, [BOS, EOS])
    return torch.cat([bit_codes(vocabulary_size, num_bits), marks, marker_codes(vocabulary_size, num_bits)], dim=1)


def binary_embeddings(sizes: VocabularySizes, num_bits: int | None) -> tuple[BinaryEmbedding, BinaryEmbedding, int]:
    """Of source and target, and the number of channels of both; without ``num_bits``, each has as few as it needs."""
    either = [input_codes(size, num_bits or bits_needed(size)) for size in (sizes.source, sizes.target)]
    channels = max(codes.size(1) for codes in either)  # those that one side has no markers for stay 0
    source, target = (BinaryEmbedding(F.pad(codes, (0, channels - codes.size(1)))) for codes in either)
    return source, target, channels


class BinaryOutput(OutputLayer):
    """One logit for each bit, one for eos, and one for each marker.

    The score of a symbol is its log-probability if its bits are independent, sum_j b_j l_j - softplus(l_j); that of eos
    and of a marker is its own logit. Over all 2^k symbols the probabilities sum to 1, so given a symbol the softmax over
    the vocabulary is exactly the product of its bits' probabilities: the cross-entropy of the bits is the sum of k
    logistic ones, as in Graves et al. 2014, section 4. Without markers p(eos) = sigma(its logit) besides.
    """

    def __init__(self, project: nn.Linear, num_bits: int, table: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.project, self.num_bits = project, num_bits
        self.register_buffer("table", table, persistent=False)  # [V, k + 1 + markers + 1]
        self.register_buffer("bias", bias, persistent=False)  # [V]

    def logits(self, hidden: Tensor) -> Tensor:
        logits = at_least_float32(self.project(hidden))  # [..., k + 1 + markers]
        spent = F.softplus(logits[..., : self.num_bits]).sum(-1, keepdim=True)
        features = torch.cat([logits, spent], dim=-1)
        table, bias = (self.get_buffer(name).to(features.dtype) for name in ("table", "bias"))
        with torch.autocast(hidden.device.type, enabled=False):  # what is spent and the bits cancel, but not in 16 bits
            return F.linear(features, table, bias)

    def restrict(self, vocabulary: Tensor) -> Scoring:
        if vocabulary.dim() == 2:
            return OwnColumns(self, vocabulary, absences(vocabulary, self.get_buffer("table").dtype))
        table, bias = self.get_buffer("table")[vocabulary], self.get_buffer("bias")[vocabulary]
        return BinaryOutput(self.project, self.num_bits, table, bias)

    def linear(self) -> None:
        """The scores are not linear in the hidden state: what a symbol subtracts is not."""
        return None


def binary_output(hidden_size: int, vocabulary_size: int, num_bits: int | None) -> BinaryOutput:
    """A layer over the whole vocabulary, with k + 1 + markers outputs of its own; None: as few bits as it needs."""
    num_bits = num_bits or bits_needed(vocabulary_size)
    symbols = _is_symbol(vocabulary_size, num_bits)[:, None].float()
    codes = [
        bit_codes(vocabulary_size, num_bits),
        _one_hot(vocabulary_size, [EOS]),
        marker_codes(vocabulary_size, num_bits),
        -symbols,  # what each symbol subtracts is the same for all of them
    ]
    table = torch.cat(codes, dim=1)
    project = nn.Linear(hidden_size, table.size(1) - 1)
    return BinaryOutput(project, num_bits, table, NEVER * (table == 0).all(1))

"""How long a translation may become: a rule over each sentence's own length, never over its batch."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.interface import Decodable


def length_limits(model: Decodable, source_lengths: Tensor, max_len_a: float, max_len_b: float) -> Tensor:
    """[B] the most tokens, eos included, of each translation: a * source length + b pieces, then eos.

    ``source_lengths`` [B] count the eos; the rule does not. The model's own limit is respected.
    """
    pieces = torch.floor((source_lengths - 1).to(torch.float64) * max_len_a + max_len_b).to(torch.int64)
    limits = (pieces + 1).clamp(min=1)
    of_model = model.max_target_lengths(source_lengths)
    return limits if of_model is None else torch.minimum(limits, of_model.to(limits))


def check_lengths(max_len_a: float, max_len_b: float, min_len: int) -> None:
    """Refuse length options that contradict each other."""
    if max_len_a < 0 or max_len_b < 0 or min_len < 0:
        raise UsageError(
            f"search.max_len_a={max_len_a}, search.max_len_b={max_len_b} and search.min_len={min_len} "
            f"must not be negative"
        )
    if max_len_a == 0 and max_len_b < max(min_len, 1):
        raise UsageError(
            f"search.max_len_b={max_len_b} with search.max_len_a=0 leaves no room for search.min_len={min_len} pieces; "
            f"raise --max-len-b"
        )

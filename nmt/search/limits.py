"""How long a translation may become: a rule over each sentence's own length, never over its batch."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.interface import Decodable
from nmt.search.limits_config import LengthConfig

_UNLIMITED = 2.0**31  # pieces: nobody waits for more


def length_limits(
    model: Decodable,
    source_lengths: Tensor,
    config: LengthConfig,
    own: Tensor | None = None,
    least: Tensor | None = None,
) -> Tensor:
    """[B] the most tokens, eos included, of each translation: a * source length + b pieces, then eos.

    ``source_lengths`` [B] count the eos; the rule does not. Where ``own`` [B] is not 0, it stands in place of the rule. No
    limit is below ``least`` [B], and the model's own limit is respected in any case.
    """
    wanted = (source_lengths - 1).to(torch.float64) * config.max_len_a + config.max_len_b
    limits = torch.floor(wanted).clamp(0, _UNLIMITED).to(torch.int64) + 1
    if own is not None:
        limits = torch.where(own > 0, own, limits)
    if least is not None:
        limits = torch.maximum(limits, least)
    of_model = model.max_target_lengths(source_lengths)
    return limits if of_model is None else torch.minimum(limits, of_model.to(limits))
